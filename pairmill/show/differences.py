"""What differs between two tokenizers, by the same texts, or between two plans, by their rows."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from pairmill import storage
from pairmill.encoder import Encoder
from pairmill.errors import InputError, UsageError
from pairmill.formats.drawn_rows import DrawnRows
from pairmill.formats.opened import OpenResult, open_result
from pairmill.formats.tokenizer_file import locate
from pairmill.show.config import ShowConfig
from pairmill.show.lines import CONTROL, HEAD, SOFT, TARGET, Decoder, Line, Part, line, visible

_TEXTS: Final = 20
_SHOWN: Final = 300
"""Characters of a text that are shown, in tokens."""


def show(result: OpenResult | None, given: str, config: ShowConfig) -> Iterator[Line]:
    """Yield what differs; of one tokenizer alone, the tokens of the texts.

    Args:
        result: the folder of ``given``; None of a tokenizer.json.
        given: the path.

    Raises:
        InputError: ``diff`` is not of the same kind.
        UsageError: no text to encode.
    """
    if result is not None and result.kind in ("plan", "sampled"):
        yield from _plans(given, config)
    else:
        yield from _tokenizers(given, config)


def report(result: OpenResult) -> Iterator[Line]:
    """Yield the report of a result that has no rows to show."""
    uri = storage.join(result.uri, "report.md")
    if not storage.store_for(uri).exists(uri):
        raise InputError("nothing to show", where=result.uri, got=result.kind, hint="pairmill stats says what it has")
    for text in storage.store_for(uri).read(uri).decode().splitlines():
        yield line(text, HEAD if text.startswith("#") else "")


def _plans(given: str, config: ShowConfig) -> Iterator[Line]:
    roots = [storage.normalise(config.root, "root")] if config.root else []
    sides = [DrawnRows.of_sample(place, option, roots) for place, option in ((given, "path"), (config.diff, "diff"))]
    first, second = sides
    if first is None or second is None:
        where = f"diff={config.diff}" if second is None else f"path={given}"
        raise InputError("not a sample of pairmill", where=where, hint="give two of <root>/sample/<fingerprint>")
    shared = first.shared_tasks(second)
    yield line(f"{'rows in it':>12} {'in diff':>12} {'only in it':>12} {'only in diff':>12}  task", HEAD)
    sums = np.zeros(4, np.int64)
    of_second = {other: name for name, other in shared.items()}
    names = [*first.tasks, *(name for name in second.tasks if name not in of_second)]
    same = 0
    for name in names:
        if name in shared:
            counts = _both(first, second, name, shared[name])
        else:
            here, there = first.tasks.get(name, 0), 0 if name in of_second else second.tasks.get(name, 0)
            counts = [here, there, here, there]
        sums += counts
        if not counts[2] and not counts[3]:
            same += 1
            continue
        yield [
            Part("".join(f"{count:>12,} " for count in counts[:2])),
            Part("".join(f"{count:>12,} " for count in counts[2:]), TARGET),
            Part(f" {visible(name)}"),
        ]
    yield line("".join(f"{count:>12,} " for count in sums.tolist()) + f" all tasks, {same:,} of them the same", HEAD)


def _both(first: DrawnRows, second: DrawnRows, name: str, other: str) -> list[int]:
    """Return the rows of a task in either plan, and those in one alone."""
    mine, theirs = np.asarray(first.rows(name)), np.asarray(second.rows(other))
    only = int((~np.isin(mine, theirs)).sum()), int((~np.isin(theirs, mine)).sum())
    return [len(mine), len(theirs), *only]


def _tokenizers(given: str, config: ShowConfig) -> Iterator[Line]:
    places = [given, config.diff] if config.diff else [given]
    decoders = [Decoder(locate(place)) for place in places]
    encoders = [Encoder.from_json(decoder.text, where=place) for decoder, place in zip(decoders, places, strict=True)]
    totals, same, count, size = [0] * len(places), 0, 0, 0
    for text in _texts(config):
        ids = [encoder.encode([text]).ids.tolist() for encoder in encoders]
        equal = len(ids) > 1 and ids[0] == ids[1]
        count, same, size = count + 1, same + equal, size + len(text.encode())
        totals = [total + len(each) for total, each in zip(totals, ids, strict=True)]
        for place, decoder, each in zip(places, decoders, ids, strict=True):
            yield line(f"{len(each):,} tokens by {place}" + (", the same ids" if equal else ""), HEAD)
            yield [*_split(decoder, each)]
            if config.ids:
                yield from decoder.table(each, [])
            if equal:
                break
        yield []
    for place, total in zip(places, totals, strict=True):
        yield line(f"{total:,} tokens, {size / max(1, total):.2f} bytes per token: {place}", HEAD)
    if config.diff:
        more = totals[1] / max(1, totals[0]) - 1
        yield line(f"{same:,} of {count:,} texts have the same ids; diff has {more:+.1%} tokens", HEAD)


def _texts(config: ShowConfig) -> Iterator[str]:
    if config.text:
        yield config.text
        return
    if not config.rows:
        raise UsageError("no text to encode", where="text", expected="text=<text>, or rows=<folder of rows>")
    left = config.n or _TEXTS
    for place in config.rows:
        for batch in open_result(place, "rows").rows():
            for instruction, response in zip(batch["instruction"][:left], batch["response"][:left], strict=True):
                yield from (text for text in (instruction.as_py(), response.as_py()) if text)
            left -= min(left, len(batch))
            if not left:
                return


def _split(decoder: Decoder, ids: list[int]) -> Iterator[Part]:
    """Yield the tokens of a text with bars between them."""
    shown = 0
    for at, number in enumerate(ids):
        text = decoder.token(number)
        shown += len(text)
        if shown > _SHOWN:
            yield Part(f" … {len(ids) - at:,} more", SOFT)
            return
        yield Part("│" if at else "", SOFT)
        yield Part(text, CONTROL if text.startswith("⟦") else "")
