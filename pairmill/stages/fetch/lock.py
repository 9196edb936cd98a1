"""``sources.lock.yaml``: which revision of each source this project uses.

A revision is written when it is first resolved, and used from then on; ``update=`` moves it.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass

import yaml

from pairmill import storage
from pairmill.address import GIT, HUB
from pairmill.errors import InputError
from pairmill.stages.fetch.scratch import alone
from pairmill.storage import partials

_FORMAT = 1
_HEAD = "# The revision of each raw data set that this project uses. Written by fetch; update= moves one.\n"


@dataclass(frozen=True)
class Pin:
    """What a source is locked to.

    Args:
        origin: what was requested: ``hub:openai/gsm8k@main``, ``git:https://…@main``, ``https://….tar.gz``.
        revision: the commit (40 hexadecimal digits); of a file over https its version as the server tells it.
        sha256: of a file over https, or of a tokenizer in a git repository, the digest of its bytes, once they were
            seen.
        licence: of finished data on the Hub, what its card says.
    """

    origin: str
    revision: str
    sha256: str = ""
    licence: str = ""

    @property
    def of_commit(self) -> bool:
        """Whether the revision is a commit."""
        return self.origin.startswith(("hub:", "hub rows:", "git:", HUB, GIT, "git+http://"))


@contextmanager
def held(uri: str) -> Iterator[None]:
    """Lock the file for this machine, so that concurrent runs agree on revisions.

    In a bucket there is no lock: if two runs lock a source for the first time at once, the last one wins.
    """
    if storage.scheme(uri) != "file":
        yield
        return
    path = storage.local_path(uri)
    with ExitStack() as stack:
        # A read-only file does not change.
        if os.access(path.parent, os.W_OK) or not path.exists():
            stack.enter_context(alone(path.with_name(partials.head_of(path) + "lock")))
        yield


def read(uri: str) -> dict[str, Pin]:
    """Return the pins by source; none if there is no such file.

    Raises:
        InputError: it is not what fetch wrote.
    """
    store = storage.store_for(uri)
    if not store.exists(uri):
        return {}
    try:
        raw = yaml.safe_load(store.read(uri))
        if raw["format"] != _FORMAT:
            raise InputError("unknown format", where=uri, got=str(raw["format"]), expected=str(_FORMAT))
        pins: dict[str, dict[str, object]] = raw["sources"]
        return {name: _pin(item) for name, item in pins.items()}
    except (yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InputError(
            "not a lock file of fetch",
            where=uri,
            got=" ".join(str(error).split())[:200],
            hint="restore it from version control, or delete it to lock every source again",
        ) from error


def _pin(item: Mapping[str, object]) -> Pin:
    for key, value in item.items():
        if not isinstance(value, str):
            raise TypeError(f"{key} is not text: {value!r}")
    pin = Pin(**item)  # type: ignore[arg-type]
    if pin.of_commit and not re.fullmatch("[0-9a-f]{40}", pin.revision):
        raise ValueError(f"{pin.revision!r} is not a commit hash")
    if pin.sha256 and not re.fullmatch("[0-9a-f]{64}", pin.sha256):
        raise ValueError(f"{pin.sha256!r} is not a sha256")
    return pin


def write(uri: str, pins: Mapping[str, Pin]) -> None:
    """Write these pins to the file and keep those of other sources. Call it within :func:`held`."""
    raw = {
        "format": _FORMAT,
        "sources": {
            name: {key: value for key, value in asdict(pin).items() if value}
            for name, pin in sorted({**read(uri), **pins}.items())
        },
    }
    text = _HEAD + yaml.safe_dump(raw, sort_keys=False, allow_unicode=True, width=120)
    storage.store_for(uri).write(uri, text.encode())
