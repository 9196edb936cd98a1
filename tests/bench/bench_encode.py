"""MB/s of encoding on one core, first and second pass, against three exact peers."""

from __future__ import annotations

import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import measure
from measure import ROOT, ratio, spread

ROUNDS = 5
PEERS = Path(os.environ.get("PAIRMILL_BENCH", ROOT / "build" / "bench")) / "bin" / "python"
"""The Python of requirements/bench.txt: one environment cannot hold two versions of tokenizers."""
SIDES = {
    "pairmill": ("pairmill", sys.executable),
    "tokenizers 0.22.2": ("wheel", sys.executable),
    "fastokens 0.3.5": ("fastokens", PEERS),
    "tokenizers 1.0.0rc3": ("tokenizers 1", PEERS),
}
"""Which side of peer_encode.py each is, and its Python."""


def bench(tokenizer: Path, rows: Path, folder: Path) -> None:
    """Print the table. Every turn is a process of its own, so that nothing of a first pass is left from another."""
    files = sorted(rows.glob("*.parquet"))
    sizes, given = {}, {}
    # The wheel takes its time: it gets the first file.
    for name, chosen in (("all", files), ("part", files[:1])):
        strings = measure.texts(chosen)
        sizes[name] = measure.megabytes(strings)
        given[name] = folder / f"texts-{name}.pickle"
        given[name].write_bytes(pickle.dumps(strings.to_pylist()))
    speeds: dict[str, dict[str, list[float]]] = {side: {"cold": [], "warm": []} for side in SIDES}
    ids: dict[str, str] = {}
    with measure.one_core():
        for _ in range(ROUNDS):
            for side in SIDES:
                part = "part" if side == "tokenizers 0.22.2" else "all"
                said = _turn(side, tokenizer, given[part])
                ids[side] = said["ids"]
                for cache, values in speeds[side].items():
                    values.append(sizes[part] / said[cache])
        part_ids = _turn("pairmill", tokenizer, given["part"])["ids"]
    expected = dict.fromkeys(SIDES, ids["pairmill"]) | {"tokenizers 0.22.2": part_ids}
    ours = speeds["pairmill"]
    measure.table(
        f"encode, one core, {sizes['all']:.0f} MB of text (tokenizers 0.22.2: {sizes['part']:.0f} MB of it), MB/s, "
        f"median of {ROUNDS} processes (from to)",
        "|first pass|second pass|pairmill, first|second|same ids",
        [
            (
                side,
                *(spread(values[cache]) for cache in ours),
                *(ratio(ours[cache], values[cache]) for cache in ours),
                "yes" if ids[side] == expected[side] else "NO",
            )
            for side, values in speeds.items()
        ],
    )
    print("pairmill takes Arrow arrays, the others lists of str; of tokenizers 1.0.0rc3 the ids are not taken out.\n")


def _turn(side: str, tokenizer: Path, texts: Path) -> dict[str, Any]:
    name, python = SIDES[side]
    script = Path(__file__).with_name("peer_encode.py")
    said: dict[str, Any] = json.loads(measure.run([str(python), str(script), name, str(tokenizer), str(texts)]).out)
    return said
