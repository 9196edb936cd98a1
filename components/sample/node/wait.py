"""``wait``: a trainer's init container stays here until its node has the sample."""

from __future__ import annotations

import time
from dataclasses import dataclass

from pairmill import log
from pairmill.engine import manifest as manifests
from pairmill.engine.options import option
from pairmill.errors import InputError, UsageError
from pairmill.formats.sample_folder import PLAN, folder_of

_SECONDS = 0.5
_SAY_EVERY = 30.0


@dataclass(kw_only=True)
class WaitConfig:
    """Wait until a node has a sample, and print its folder."""

    path: str = option(help="folder of the node, or a sampled folder")
    plan: str = option("", help="fingerprint of the sample; empty = the one that the node's PLAN names")
    timeout: int = option(600, help="seconds to wait at most")


def wait(config: WaitConfig) -> str:
    """Look twice a second; returns the sampled folder once it is whole.

    Raises:
        UsageError: an option is out of range.
        InputError: it was not there in time; the message says what was.
    """
    if config.plan and not manifests.is_fingerprint(config.plan):
        raise UsageError("is no fingerprint", where="plan", got=config.plan, expected="16 hexadecimal digits")
    if config.timeout < 0:
        raise UsageError("is negative", where="timeout", got=str(config.timeout), expected="seconds, 0 or more")
    start = said = time.monotonic()
    while True:
        folder = folder_of(config.path, "path", config.plan)
        state = _state(str(folder), config)
        if not state:
            return f"{folder}\n"
        now = time.monotonic()
        if now - start >= config.timeout:
            raise InputError(
                f"the sample is not there after {config.timeout} s",
                where=f"path={config.path}",
                got=state,
                expected=f"the sample {config.plan}" if config.plan else f"the sample that {PLAN} names",
                hint="see the log of the node's sampler (kubectl logs … -c sample), or raise timeout=",
            )
        if now - said >= _SAY_EVERY:
            said = now
            log.event(f"waiting for {folder}: {state}", seconds=round(now - start))
        time.sleep(_SECONDS)


def _state(folder: str, config: WaitConfig) -> str:
    """What is missing of a sampled folder; empty if nothing is."""
    try:
        manifest = manifests.read(folder)
    except InputError as error:
        return str(error)
    if manifest is None:
        return f"{folder} is not there"
    if config.plan and manifest.fingerprint != config.plan:
        return f"{folder} is the sample {manifest.fingerprint}"
    return "; ".join(manifests.damage(folder, manifest.files)[:3])
