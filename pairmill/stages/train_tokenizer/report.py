"""What a person sees of a trained tokenizer."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import PurePath

from pairmill.engine.manifest import Manifest
from pairmill.formats.results.rows import TrainTokenizerResult
from pairmill.report.charts import Bars, Curve
from pairmill.report.model import Block, Cell, Report, Table, describe_rows

_NOT_MEASURED = "not measured"


def report_of(manifest: Manifest) -> Report:
    """Return the report of a finished tokenizer folder."""
    result, ledger = TrainTokenizerResult.from_manifest(manifest), manifest.ledger
    metrics = result.metrics
    # A manifest that was read again has its keys sorted; its report has to be the same.
    tasks: list[tuple[str, dict[str, int]]] = sorted(result.tasks.items())
    sources: dict[str, Counter[str]] = {}
    for name, task in tasks:
        sources.setdefault(_source(name), Counter()).update(task)
    tested, tested_tasks = _tested(sources.items()), _tested(tasks)
    unseen: Cell = metrics.get("held_out_tokens_per_byte", _NOT_MEASURED)
    figures: dict[str, Cell] = {
        "Vocabulary": result.vocab_size,
        "Asked for": result.asked,
        "Merges": result.merges,
        "Distinct words": metrics.get("distinct_words", _NOT_MEASURED),
        "Tokens per byte": metrics.get("tokens_per_byte", _NOT_MEASURED),
        "Tokens per byte, held out": unseen,
        "Rows": ledger.rows_in,
        "Rows read": ledger.rows_kept,
        "Rows held out": ledger.measures["held_out_rows"],
        "Fingerprint": manifest.fingerprint,
    }
    blocks: list[Block] = []
    if result.growth:
        marks = [("held out", result.vocab_size, 1 / unseen)] if isinstance(unseen, float) else []
        blocks.append(Curve("Vocabulary growth", result.growth, "tokens", "bytes per token", marks))
    blocks += [
        Bars("Held-out rows by source", sorted(tested.items(), key=lambda bar: -bar[1]), "bytes per token"),
        Bars(
            "Text by source",
            sorted(((name, sums["text_bytes"]) for name, sums in sources.items()), key=lambda bar: -bar[1]),
            "bytes",
        ),
        Table(
            "Tasks",
            ("Task", "Rows", "Rows read", "Bytes of text", "Bytes per token, held out"),
            [
                (name, task["rows"], task["rows_read"], task["text_bytes"], tested_tasks.get(name, "–"))
                for name, task in sorted(tasks, key=lambda item: -item[1]["text_bytes"])
            ],
            "Held out is what a second vocabulary makes of rows that it has not seen, trained on all the others; "
            "the tokenizer itself is trained on all.",
        ),
        Table("Longest tokens", ("Token", "Bytes"), result.longest, "Quoted; \ufffd is part of a character."),
    ]
    size = result.vocab_size
    look_at = []
    if size < result.asked:
        look_at.append(f"The rows give {size:,} tokens only; {result.asked:,} were asked for.")
    if unseen == _NOT_MEASURED:
        look_at.append("How it does on rows that it has not seen was not measured.")
    per_byte = f", {metrics['tokens_per_byte']:.4f} tokens per byte" if "tokens_per_byte" in metrics else ""
    return Report(
        "train_tokenizer",
        figures,
        blocks,
        verdict=f"Rows: {describe_rows(ledger, 'read')}; {size:,} tokens of vocabulary{per_byte}.",
        look_at=look_at,
    )


def _source(task: str) -> str:
    """Return what a task is of: the folder that its name begins with, or else the name of its file."""
    folder, below, _ = task.partition("__")
    return folder if below else PurePath(task).stem


def _tested(sums: Iterable[tuple[str, Mapping[str, int]]]) -> dict[str, float]:
    """Return bytes a token, by name, of those of which anything was held out."""
    return {
        name: some["held_out_bytes"] / some["held_out_tokens"] for name, some in sums if some.get("held_out_tokens")
    }
