"""Memory of curate and select on as many rows as make it stop to grow."""

import json
import random
import subprocess
import sys
from pathlib import Path

from tests.integration.test_memory import MB, peak
from tests.support import tools
from tests.support.stages import curating

CURATED, SELECTED = 1_000_000, 10_000_000
_LINES = 10_000


def test_curate_of_a_million_rows(tmp_path: Path) -> None:
    """With the settings that are shipped. Near deduplication took 399 MiB, and 408 MiB of four million rows."""
    rows = tmp_path / "rows"
    program = [sys.executable, "tests/bench/curate_rows.py", rows, CURATED, 8]
    subprocess.run(list(map(str, program)), cwd=tools.REPOSITORY, check=True)
    root = tmp_path / "root"
    most = peak(tools.command("curate", rows=rows, root=root, workers=1))
    (made,) = (path for path in (root / "curate").iterdir() if path.name != "shards")
    ledger = curating.manifest(made).ledger
    print(f"\ncurate: {CURATED} rows, {most / MB:.0f} MiB, {ledger.rows_kept} kept")
    assert 0.7 * CURATED < ledger.rows_kept < 0.9 * CURATED
    assert most < 512 * MB


def test_select_of_ten_million_rows_in_one_file_of_lines(tmp_path: Path) -> None:
    """It was 2,885 MiB while the keys of a file were held at once, and 410 then."""
    rng = random.Random(1)
    lines = []
    for _ in range(_LINES):
        question, answer = (" ".join(rng.choices(curating.WORDS, k=6)) for _ in range(2))
        lines.append(json.dumps({"condition": "direct", "instruction": question, "response": answer}) + "\n")
    rows, target = tmp_path / "rows", tmp_path / "target"
    rows.mkdir()
    target.mkdir()
    with (rows / "x.jsonl").open("w") as file:
        for _ in range(SELECTED // _LINES):
            file.writelines(lines)
    (target / "x.jsonl").write_text("".join(lines[:100]))
    said = f"method: dsir\nshare: 0.1\ndsir: {{targets: [{{name: some, rows: {target}}}]}}\n"
    (tmp_path / "select.yaml").write_text(said)
    root = tmp_path / "root"
    most = peak(tools.command("select", rows=rows, root=root, select_config=tmp_path / "select.yaml", workers=1))
    (made,) = (path for path in (root / "select").iterdir() if path.name != "shards")
    print(f"\nselect: {SELECTED} rows, {most / MB:.0f} MiB")
    assert curating.manifest(made).ledger.rows_kept == SELECTED // 10
    assert most < 600 * MB
