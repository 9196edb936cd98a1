"""``wait``: holds a trainer's init container until its node has the sample."""

from __future__ import annotations

import time
from dataclasses import dataclass

from pairmill import log
from pairmill.engine import manifest as manifests
from pairmill.engine.options import option
from pairmill.errors import InputError, UsageError
from pairmill.formats.sample_folder import PLAN
from pairmill.stages.sample.node.config import require_at_least
from pairmill.stages.sample.node.serve import Sampled

_SECONDS = 0.5
_LOG_EVERY = 30.0


@dataclass(kw_only=True)
class WaitConfig:
    """Wait until a node has a sample, and print its folder."""

    path: str = option(help="folder of the node, or a sampled folder")
    plan: str = option("", help="fingerprint of the sample; empty = the one that the node's PLAN names")
    timeout: int = option(600, help="longest wait in seconds")


def wait(config: WaitConfig) -> str:
    """Look twice a second. Return the sampled folder once it is complete.

    Raises:
        UsageError: an option is not valid.
        InputError: the sample was not complete in time.
    """
    if config.plan and not manifests.is_fingerprint(config.plan):
        raise UsageError("not a valid fingerprint", where="plan", got=config.plan, expected="16 hexadecimal digits")
    require_at_least(config, timeout=0)
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
