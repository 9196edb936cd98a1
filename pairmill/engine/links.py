"""What a stage leaves out of the folders that it is given; and symbolic links: skipped, followed or refused.

A link can lead anywhere, and object stores have none. The rule holds while a stage plans, wherever a folder is listed
with :func:`list_folder`; what is left out is in the stage's manifest (:mod:`pairmill.engine.vanished`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

from pairmill import storage
from pairmill.errors import InputError
from pairmill.storage import Entry

LinkRule = Literal["skip", "follow", "refuse"]
LeftOut = tuple[str, str]
"""The kind of an alarm, and the name of what is left out."""
_NAMED = 5
_RULE: ContextVar[LinkRule] = ContextVar("rule", default="skip")
_LEFT_OUT: ContextVar[list[LeftOut] | None] = ContextVar("left out", default=None)


@contextmanager
def obeyed(rule: LinkRule) -> Iterator[None]:
    """Apply a rule to all folders that are listed within, and note what is left out."""
    tokens = _RULE.set(rule), _LEFT_OUT.set([])
    try:
        yield
    finally:
        _RULE.reset(tokens[0])
        _LEFT_OUT.reset(tokens[1])


def leave_out(kind: str, names: Iterable[str]) -> None:
    """Note what is left out, for the alarms of the stage that plans."""
    noted = _LEFT_OUT.get()
    if noted is not None:
        noted += [(kind, name) for name in names]


def left_out() -> tuple[LeftOut, ...]:
    """Return what was left out so far, sorted; links that lead to folders end with ``/``."""
    return tuple(sorted(set(_LEFT_OUT.get() or [])))


def list_folder(uri: str, counts: Callable[[str], bool] = lambda _: True) -> Sequence[Entry]:
    """List all objects below a folder that a stage is given, by the rule of links.

    Args:
        counts: whether a link matters, by its path below the folder; that of a link to a folder ends with ``/``.

    Raises:
        InputError: links are refused, and there is one that matters.
    """
    rule, store = _RULE.get(), storage.store_for(uri)
    entries, every = store.list_with_links(uri, follow=rule == "follow")
    some = [path for path in every if counts(path)]
    if some and rule == "refuse":
        more = f" and {len(some) - _NAMED:,} more" if len(some) > _NAMED else ""
        raise InputError(
            "symbolic links are refused",
            where=uri,
            got=f"{len(some):,} links: {', '.join(some[:_NAMED])}{more}",
            expected="files and folders, with links=refuse",
            hint="put the files themselves there, as cp -rL does, or write links=follow or links=skip",
        )
    leave_out("links", some)
    return entries
