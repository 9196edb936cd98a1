"""Sampled folders whose manifests name the plans before them, as those of ``sample extend=`` do."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pairmill.engine.manifest import File, Ledger, Manifest, content_key
from pairmill.loader.folder import SampledFolder
from tests.support.data import samples

LAYOUTS = ("compact", "data_io", "reference")


def epoch(number: int, rows: int) -> list[tuple[int, int]]:
    random = np.random.default_rng(number)
    return [(int(inst), int(resp)) for inst, resp in random.integers(2, 20, (rows, 2))]


class Family:
    """Folders of one training that grows. Epochs of one number have the same rows."""

    def __init__(self, folder: Path, rows: int = 400) -> None:
        self.folder, self.rows = folder, rows
        self.plans: dict[str, tuple[str, int, list[int]]] = {}

    def add(
        self,
        name: str,
        epochs: Sequence[int],
        parent: str = "",
        kept: int = 0,
        after: tuple[str, int, int] | None = None,
    ) -> Path:
        """Sample epochs by number; the first ``kept`` are those of the parent. ``after``: name, epochs and rows of what
        is read before."""
        folder = samples.sampled(self.folder / name, [epoch(number, self.rows) for number in epochs], ids=60)
        chain: list[dict[str, Any]] = []
        at, least = parent, kept
        while at:
            before, its_kept, rows = self.plans[at]
            chain.insert(
                0,
                {
                    "plan": fingerprint(at),
                    "fingerprints": {layout: fingerprint(at, layout) for layout in LAYOUTS},
                    "digest": SampledFolder(self.folder / at).digest,
                    "epochs": rows,
                    "kept": least,
                },
            )
            at, least = before, min(least, its_kept)
        self.plans[name] = parent, kept, [self.rows] * len(epochs)
        about = {"plan": fingerprint(parent), "from_epoch": kept, "chain": chain} if parent else {}
        data = {"layout": "compact", "stats": {}, "sources": [], "parent": about}
        if after is not None:
            before, read, rows_read = after
            fingerprints = {layout: fingerprint(before, layout) for layout in LAYOUTS}
            data["after"] = {
                "plan": fingerprint(before),
                "epochs": read,
                "rows": rows_read,
                "fingerprints": fingerprints,
            }
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths]
        files = [
            File(path.relative_to(folder).as_posix(), path.stat().st_size, digest)
            for path, digest in zip(paths, digests, strict=True)
        ]
        Manifest("sample", 1, fingerprint(name), {}, [], Ledger(), files, data=data).finish(str(folder))
        return folder


def fingerprint(name: str, layout: str = "compact") -> str:
    return content_key("test", name, layout)[:16]
