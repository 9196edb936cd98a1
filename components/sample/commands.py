"""What else the sampler's program does: one command a line, with its options and what it does."""

from components.sample.node.prepare import PrepareConfig, prepare
from components.sample.node.serve import ServeConfig, serve
from components.sample.node.verify import VerifyConfig, verify
from components.sample.node.wait import WaitConfig, wait
from components.sample.preview.inspect import InspectConfig, inspect
from pairmill.interface.cli import Command

COMMANDS = {
    "inspect": Command(InspectConfig, inspect),
    "verify": Command(VerifyConfig, verify),
    "wait": Command(WaitConfig, wait),
    "serve": Command(ServeConfig, serve),
    "prepare": Command(PrepareConfig, prepare),
}
