"""What else the sampler's program does: one command a line, with its options and what it does."""

from components.sample.config import PrepareConfig, ServeConfig, VerifyConfig, WaitConfig
from components.sample.prepare import prepare
from components.sample.serve import serve
from components.sample.verify import verify
from components.sample.wait import wait
from pairmill.cli import Command

COMMANDS = {
    "verify": Command(VerifyConfig, verify),
    "wait": Command(WaitConfig, wait),
    "serve": Command(ServeConfig, serve),
    "prepare": Command(PrepareConfig, prepare),
}
