"""``pairmill show <folder> …``: what is in any finished folder, on the terminal."""

import importlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pairmill import storage
from pairmill.engine.candidates import candidates
from pairmill.errors import InputError, UsageError
from pairmill.formats.opened import open_result
from pairmill.interface import cli
from pairmill.policy.warn import warn_of_removed
from pairmill.show.config import ShowConfig

_VIEWS: Final = {
    "rows": "pairmill.show.row_texts",
    "tokenized": "pairmill.show.tokenized",
    "plan": "pairmill.show.sample",
    "sampled": "pairmill.show.sample",
}
"""By kind of result the module whose ``show`` yields its lines: chats, Arrow and the loader take long to import."""
_DIFFERENCES: Final = "pairmill.show.differences"


def show(config: ShowConfig) -> Iterator[Any]:
    """Yield the lines for the terminal (:mod:`pairmill.show.lines`).

    Raises:
        InputError: not a finished folder, or no such row; or a server makes other ids.
        UsageError: an option does not suit the folder.
    """
    given = config.path or config.tokenized or _only_one_below(config.root)
    uri = storage.normalise(given, "path")
    is_file = uri.endswith(".json") and storage.store_for(uri).exists(uri)
    result = None if is_file else open_result(given)
    if result is not None:
        warn_of_removed(result)
    if config.check_server and (result is None or result.kind != "tokenized"):
        raise UsageError("only tokens are compared with a server", where="check_server", got=given)
    if config.diff or result is None or (config.text and result.kind not in _VIEWS) or result.kind == "tokenizer":
        view = importlib.import_module(_DIFFERENCES)
        yield from view.show(result, given, config)
    elif result.kind in _VIEWS:
        yield from importlib.import_module(_VIEWS[result.kind]).show(result, config)
    else:
        yield from importlib.import_module(_DIFFERENCES).report(result)


def _only_one_below(root: str) -> str:
    """Return the one finished folder of tokenize below a root."""
    if not root:
        raise UsageError("no folder to show", where="path", expected="pairmill show <folder>, or root=<project>")
    uri = storage.normalise(root, "root")
    several = candidates(uri, "tokenized")
    if len(several) != 1:
        raise InputError(
            "several tokenized folders" if several else "no finished tokenized folder",
            where=uri,
            got=", ".join(item.fingerprint for item in several) or "none",
            expected="one",
            hint=f"name it: pairmill show {several[0].uri}" if several else "run pairmill tokenize first",
        )
    return several[0].uri


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""

    def work() -> None:
        config = cli.build(ShowConfig, cli.split(cli.name_first(arguments, "path")))
        importlib.import_module("pairmill.show.lines").write(show(config))

    return cli.program("show", ShowConfig, arguments, work)
