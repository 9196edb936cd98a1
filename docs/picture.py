"""The picture of a batch in docs/loader.md: three rows, drawn from the arrays that the loader gave."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pairmill.loader import Batch, Loader, RowPlan
from pairmill.loader.batch import IGNORED, PREFIXLM

ROWS = [([11, 12, 13], [51, 52, 53, 54]), ([14, 15], [55, 56, 57]), ([16, 17, 18, 19], [58, 59])]
SLOTS, CELL, SMALL, LEFT = 18, 28, 16, 104

STYLE = """
  svg { --fg: #1f2328; --faint: #7d8590; --line: #c8d1da; --bg: #ffffff }
  svg { --prefix: #bcdcff; --answer: #ffd9a6; --none: #f1f3f5 }
  @media (prefers-color-scheme: dark) {
    svg { --fg: #f0f6fc; --faint: #8b949e; --line: #444c56; --bg: #0d1117 }
    svg { --prefix: #1f4f86; --answer: #7d4a0c; --none: #1b2129 }
  }
  text { font: 12px ui-monospace, Menlo, Consolas, monospace; fill: var(--fg) }
  .words { font-family: system-ui, sans-serif }
  .faint { fill: var(--faint) }
  .middle { text-anchor: middle }
  .end { text-anchor: end }
  rect { stroke: var(--line) }
  .prefix { fill: var(--prefix) }
  .answer { fill: var(--answer) }
  .none { fill: var(--none) }
  .back { fill: var(--bg); stroke: none }
"""


def batch() -> Batch:
    """Return the rows above as a batch of one rank."""
    tokens: list[int] = []
    index: dict[str, list[int]] = {"inst_start": [], "inst_len": [], "resp_start": [], "resp_len": []}
    for texts in ROWS:
        for name, text in zip(("inst", "resp"), texts, strict=True):
            index[f"{name}_start"].append(len(tokens))
            index[f"{name}_len"].append(len(text))
            tokens += text
    metadata = {"tokenizer_info": {"vocab_size": 64}, "max_seq_len": 16, "total_length": len(tokens)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "epoch_0").mkdir()
        np.save(folder / "tokens.npy", np.array(tokens, np.uint8))
        for field, values in index.items():
            np.save(folder / "epoch_0" / f"{field}.npy", np.array(values, np.int32))
        (folder / "metadata.json").write_text(json.dumps(metadata))
        with Loader(RowPlan(folder, tail="keep"), batch_tokens=SLOTS, threads=0) as loader:
            return next(iter(loader))


def sees(made: Batch) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """Return which slot (first) sees which."""
    ends, prefix = made["cu_seqlens"], made["prefix_lens"]
    result = np.zeros((SLOTS, SLOTS), bool)
    for row in range(made.scalars["numseqs"]):
        begin, end = ends[row], ends[row + 1]
        result[begin:end, begin : begin + prefix[row]] = True
        result[begin + prefix[row] : end, begin:end] |= np.tri(end - begin, dtype=bool)[prefix[row] :]
    return result


def draw(made: Batch) -> Iterator[str]:
    """Yield the lines of an SVG."""
    count, total = made.scalars["numseqs"], made.scalars["total_seqlen"]
    kinds: list[str] = []
    for prefix, causal in zip(made["prefix_lens"].tolist(), made["causal_lens"].tolist(), strict=True):
        kinds += ["prefix"] * prefix + ["answer"] * causal
    kinds += ["none"] * (SLOTS - total)
    top, matrix = 34, 34 + len(PREFIXLM) * (CELL + 4) + 70
    width, height = LEFT + SLOTS * CELL + 12, matrix + SLOTS * SMALL + 14
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    yield "<title>Three rows in the slots of a batch, and which slot sees which</title>"
    yield f"<style>{STYLE}</style>"
    yield f'<rect class="back" width="{width}" height="{height}"/>'

    def cell(x: int, y: int, size: int, kind: str) -> str:
        return f'<rect class="{kind}" x="{x}" y="{y}" width="{size}" height="{size}"/>'

    def text(x: float, y: float, what: object, kind: str = "") -> str:
        return f'<text class="{kind}" x="{x:g}" y="{y:g}">{what}</text>'

    for row in range(count):
        begin, end = made["cu_seqlens"][row], made["cu_seqlens"][row + 1]
        yield text(LEFT + (begin + end) / 2 * CELL, 20, f"row {made.rows[row, 2]}", "words middle")
    yield text(LEFT + (total + SLOTS) / 2 * CELL, 20, "padding", "words middle faint")
    for line, name in enumerate(PREFIXLM):
        y = top + line * (CELL + 4) + (16 if line > 2 else 0)
        yield text(LEFT - 8, y + 18, name, "end")
        used = {"prefix_lens": count, "causal_lens": count, "cu_seqlens": count + 1}.get(name, total)
        for slot, value in enumerate(made[name].tolist()):
            per_row = {"prefix_lens": "prefix", "causal_lens": "answer"}.get(name, "none")
            kind = kinds[slot] if line < 3 else per_row if slot < used else "none"
            if name == "labels" and value == IGNORED:
                kind = "none"
            yield cell(LEFT + slot * CELL, y, CELL, kind)
            faint = " faint" if slot >= used or value == IGNORED else ""
            shown = "–" if value == IGNORED else value
            yield text(LEFT + slot * CELL + CELL / 2, y + 18, shown, f"middle{faint}")

    seen = sees(made)
    for query in range(SLOTS):
        for key in range(SLOTS):
            yield cell(LEFT + key * SMALL, matrix + query * SMALL, SMALL, kinds[key] if seen[query, key] else "none")
    yield text(LEFT, matrix - 10, "which slot (line) sees which (column)", "words")
    x = LEFT + SLOTS * SMALL + 24
    for line, (kind, words) in enumerate(
        [("prefix", "instruction, seen by its row"), ("answer", "response, seen from there on"), ("none", "not seen")]
    ):
        yield cell(x, matrix + line * 24, SMALL, kind)
        yield text(x + 24, matrix + line * 24 + 12, words, "words")
    yield text(x, matrix + 100, "– is −100: no loss there.", "words")
    yield text(x, matrix + 120, "The last slot of an instruction", "words")
    yield text(x, matrix + 136, "predicts the first token of the", "words")
    yield text(x, matrix + 152, "response; its last token is", "words")
    yield text(x, matrix + 168, "a label and never an input.", "words")
    yield "</svg>"


def picture() -> str:
    """Return the SVG, for light and dark pages."""
    return "\n".join(draw(batch())) + "\n"
