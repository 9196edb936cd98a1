"""The report of the tokenize stage."""

from pairmill.chats.long_rows import ANSWER_CUT, ANSWER_SPLIT, PROMPT_CUT, WINDOWED
from pairmill.engine.manifest import Ledger, Manifest
from pairmill.formats import report_rows
from pairmill.formats.results.tokens import TokenizeResult
from pairmill.report.charts import Bars
from pairmill.report.model import Report, Samples, Table, describe_names, describe_rows
from pairmill.stages.tokenize.config import NONE
from pairmill.stages.tokenize.lengths import tables_of
from pairmill.stages.tokenize.rendered import APART

_NOTES = {
    WINDOWED: "rows are longer than the context and have a window of their chat.",
    PROMPT_CUT: "prompts lost their middle; their answers are whole.",
    ANSWER_CUT: "answers lost their end.",
    ANSWER_SPLIT: "answers became several rows.",
    APART: "rows have prompt and rest encoded apart.",
}
"""What the report says of rows that were made to fit."""


def report_of(manifest: Manifest) -> Report:
    """Return the report of a finished folder."""
    ledger, measures = manifest.ledger, manifest.ledger.measures
    sums, per_byte = sums_of(manifest)
    density = f", {per_byte:.4f} per byte of text" if sums["text_bytes"] else ""
    result = TokenizeResult.from_manifest(manifest)
    held_out = sum(result.held_out.values())
    task_of = {name: task for task, names in result.pieces.items() for name in names}
    by_task: dict[str, Ledger] = {}
    for name, each in manifest.shards.items():
        by_task.setdefault(task_of.get(name, name), Ledger()).add(each)
    tasks = [
        (
            name,
            each.rows_in,
            each.measures["tokens"],
            each.measures["response_tokens"],
            each.measures["text_bytes"] / max(1, each.measures["tokens"]),
        )
        for name, each in sorted(by_task.items(), key=lambda item: (-item[1].measures["tokens"], item[0]))
    ]
    empty = [name for name, each in sorted(by_task.items()) if not each.rows_in]
    look_at = []
    if measures.get("dropped_bytes"):
        look_at.append(f"{measures['dropped_bytes']:,} bytes of text have no symbol in the vocabulary: left out.")
    for note, text in _NOTES.items():
        if count := ledger.notes.get(note):
            look_at.append(f"{count:,} {text}")
    if empty:
        look_at.append(f"No row is in {describe_names(empty)}.")
    if manifest.options["conditions"] == [NONE] and measures.get("text_bytes"):
        look_at.append("The tags of conditions have no token: conditions=none.")
    return Report(
        "tokenize",
        {
            "Rows": ledger.rows_in,
            **({"Held-out rows": held_out} if held_out else {}),
            "Tokens": sums["tokens"],
            "Response tokens": sums["response_tokens"],
            "Tokens per byte": per_byte,
            "Bytes without symbol": measures.get("dropped_bytes", "not known"),
            **({"Tokens in flat files": measures["window_tokens"]} if "window_tokens" in measures else {}),
            "Vocabulary": result.vocab_size,
            "Fingerprint": manifest.fingerprint,
        },
        [
            Bars("Tokens by task", [(task[0], task[2]) for task in tasks], "tokens"),
            Table("Tasks", ("Task", "Rows", "Tokens", "Response tokens", "Bytes per token"), tasks),
            *tables_of(result.lengths),
            Samples("Rows as a model sees them", result.rows, tag=report_rows.NAME),
        ],
        verdict=f"Rows: {describe_rows(ledger)}; {sums['tokens']:,} tokens{density}.",
        look_at=look_at,
    )


def sums_of(manifest: Manifest) -> tuple[dict[str, int], float]:
    """Return what was counted over all tasks, and tokens per byte of text; tokens of token files have no text."""
    sums = {"text_bytes": 0, "tokens": 0, "response_tokens": 0, **manifest.ledger.measures}
    encoded = sums["tokens"] - sums.get("given_tokens", 0)
    return sums, encoded / sums["text_bytes"] if sums["text_bytes"] else 0.0
