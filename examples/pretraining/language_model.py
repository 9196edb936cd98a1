"""A small KenLM model of rows: ``python examples/pretraining/language_model.py <words.arpa> <rows> …``.

Rows are files or folders of ``.jsonl`` and ``.parquet``. It counts the words of their responses, in lower case and with
digits as 0 (``normalise: ccnet``), up to three in a row, and takes half a count of each for what it has not seen
(absolute discounting). A model for real work is trained with KenLM's own ``lmplz`` on gigabytes; the curate stage reads
either.
"""

from __future__ import annotations

import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pairmill.engine import inputs
from pairmill.formats import rows
from pairmill.stages.curate.scores.perplexity import normalise_ccnet

ORDER = 3
DISCOUNT = 0.5
UNKNOWN = 1e-7
"""The probability of a word that no row has: a model of billions of words gives one about that."""

Words = tuple[str, ...]


def sentences(places: Iterable[str]) -> Iterator[list[str]]:
    """Yield the words of each line, between the marks of its begin and end."""
    for file in inputs.discover(list(places), rows.EXTENSIONS, "rows").files:
        for batch in rows.read(file.uri, content=file.content):
            for text in batch.response.to_pylist():
                for line in (text or "").split("\n"):
                    if words := normalise_ccnet(line).split():
                        yield ["<s>", *words, "</s>"]


def probabilities(lines: Iterable[Sequence[str]]) -> list[dict[Words, tuple[float, float]]]:
    """Return of each n-gram, by length, its probability, and the weight of what follows it and was not seen."""
    counts: list[Counter[Words]] = [Counter() for _ in range(ORDER)]
    for line in lines:
        for length in range(1, ORDER + 1):
            counts[length - 1].update(tuple(line[at : at + length]) for at in range(len(line) - length + 1))
    del counts[0]["<s>",]
    result: list[dict[Words, float]] = [{words: n / counts[0].total() for words, n in counts[0].items()}]
    back: dict[Words, float] = {}
    for length in range(2, ORDER + 1):
        following: dict[Words, list[Words]] = defaultdict(list)
        for words in counts[length - 1]:
            following[words[:-1]].append(words)
        result.append({})
        for context, seen in following.items():
            whole = sum(counts[length - 1][words] for words in seen)
            for words in seen:
                result[-1][words] = (counts[length - 1][words] - DISCOUNT) / whole
            left = 1 - sum(result[-2][words[1:]] for words in seen)
            # Where every word was seen there is nothing to share the rest with: any small weight will do.
            back[context] = DISCOUNT * len(seen) / whole / max(left, 1e-3)
    return [{words: (p, back.get(words, 1.0)) for words, p in item.items()} for item in result]


def arpa(ngrams: Sequence[dict[Words, tuple[float, float]]]) -> str:
    """Return the file's text."""
    begin = {("<unk>",): (UNKNOWN, 1.0), ("<s>",): (1e-99, 1.0)}
    ngrams = [begin | ngrams[0], *ngrams[1:]]
    lines = ["\\data\\", *(f"ngram {length}={len(item)}" for length, item in enumerate(ngrams, 1))]
    for length, item in enumerate(ngrams, 1):
        lines += ["", f"\\{length}-grams:"]
        for words, (p, weight) in sorted(item.items()):
            rest = f"\t{math.log10(weight):.6f}" if length < len(ngrams) else ""
            lines.append(f"{math.log10(p):.6f}\t{' '.join(words)}{rest}")
    return "\n".join([*lines, "", "\\end\\", ""])


def main(arguments: Sequence[str]) -> None:
    """Run the command line."""
    if len(arguments) < 2:
        raise SystemExit(__doc__)
    target = Path(arguments[0])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(arpa(probabilities(sentences(arguments[1:]))), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
