"""``wait``: holds a trainer's init container until its node has the sample."""

import time
from dataclasses import dataclass

from pairmill import log
from pairmill.engine.options import option
from pairmill.errors import InputError
from pairmill.fields import Checked
from pairmill.formats.sample_folder import PLAN
from pairmill.stages.sample.node.serve import Sampled

_SECONDS = 0.5
_LOG_EVERY = 30.0


@dataclass(kw_only=True)
class WaitConfig(Checked):
    """Wait until a node has a sample, and print its folder."""

    path: str = option(help="folder of the node, or a sampled folder")
    plan: str = option(
        "",
        help="fingerprint of the sample; empty = the one that the node's PLAN names",
        form=(r"[0-9a-f]{16}", "16 hexadecimal digits"),
    )
    timeout: int = option(600, help="longest wait in seconds", at_least=0)


def wait(config: WaitConfig) -> str:
    """Look twice a second. Return the sampled folder once it is complete.

    Raises:
        InputError: the sample was not complete in time.
    """
    start = logged = time.monotonic()
    sampled = Sampled(config.path, config.plan)
    while True:
        state = sampled.look()
        if not state.missing:
            return f"{state.folder}\n"
        now = time.monotonic()
        if now - start >= config.timeout:
            raise InputError(
                f"no complete sample after {config.timeout} s",
                where=f"path={config.path}",
                got=state.missing,
                expected=f"the sample {config.plan}" if config.plan else f"the sample that {PLAN} names",
                hint="see the log of the node's sampler (kubectl logs … -c sample), or raise timeout=",
            )
        if now - logged >= _LOG_EVERY:
            logged = now
            log.event(f"waiting for {state.folder}: {state.missing}", seconds=round(now - start))
        time.sleep(_SECONDS)
