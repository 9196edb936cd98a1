"""What else the sampler's program does: one command a line, with its options and what it does."""

from components.sample.inspect import InspectConfig, inspect
from components.sample.prepare import PrepareConfig, prepare
from components.sample.serve import ServeConfig, serve
from components.sample.verify import VerifyConfig, verify
from components.sample.wait import WaitConfig, wait
from pairmill.cli import Command

COMMANDS = {
    "inspect": Command(InspectConfig, inspect),
    "verify": Command(VerifyConfig, verify),
    "wait": Command(WaitConfig, wait),
    "serve": Command(ServeConfig, serve),
    "prepare": Command(PrepareConfig, prepare),
}
