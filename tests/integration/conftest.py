"""Input that several modules read: rows, a trained tokenizer, a tokenized folder. Nobody writes into them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import tools


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> tools.World:
    base = tmp_path_factory.mktemp("world")
    raw, root = base / "raw", base / "root"
    tools.raw_data(raw, size=120)
    rules = tools.rules(base / "rules.yaml")
    target = base / "target"
    tools.write_rows(target / "some.jsonl", [("direct", "How many are left?", "Seven are left.")] * 9)
    tools.write_text(
        base / "select.yaml", f"method: dsir\nshare: 0.5\ndsir: {{targets: [{{name: some, rows: {target}}}]}}\n"
    )
    tools.write_text(base / "mix.yaml", "method: unimax\n")
    cleaned = tools.folder(tools.stage("clean", raw=raw, root=root, workers=1))
    tokenizer = tools.folder(
        tools.stage("train_tokenizer", rows=cleaned, root=root, vocab_size=400, prefix_config_path=rules, workers=1)
    )
    tokenized = tools.folder(tools.stage("tokenize", rows=cleaned, tokenizer=tokenizer, root=root, workers=1))
    return tools.World(raw, rules, cleaned, tokenizer, tokenized)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], tools.Disk]]:
    """Makes small file systems in memory; needs the right to mount, and fails without it."""
    disks: list[tools.Disk] = []

    def make(size: int) -> tools.Disk:
        disk = tools.Disk(tmp_path / f"disk{len(disks)}", size)
        disks.append(disk)
        return disk

    yield make
    for disk in disks:
        disk.remove()
