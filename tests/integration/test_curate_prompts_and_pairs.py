"""curate over prompts and pairs: duplicates and leaks go, and the columns of those that stay are as they were."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pairmill.engine import runner
from pairmill.errors import PairmillError
from pairmill.formats import kept_rows, row_files
from pairmill.formats.slices import Slicing
from pairmill.rowstage import join
from pairmill.stages.clean import sink
from pairmill.stages.clean.config import CleanConfig
from pairmill.stages.clean.core import Clean
from pairmill.stages.tokenize.config import TokenizeConfig
from pairmill.stages.tokenize.core import Tokenize
from tests.support.stages import curating
from tests.support.tools import World

QUIET = "near: off\nheuristics: off\n"
BENCHMARK = "decontaminate: {{benchmarks: [{{name: exam, uri: {uri}, question: q, answers: a}}]}}\n"


def clean(folder: Path, records: list[dict[str, Any]], lines: str) -> Path:
    """The folder of clean's result."""
    (folder / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (folder / "mine.yaml").write_text(f"name: mine\nfiles: a.jsonl\n{lines}\n")
    config = CleanConfig(sources=[str(folder / "mine.yaml")], root=str(folder / "root"), workers=1)
    return Path(runner.run(Clean(), config).uri)


def records(kind: str, count: int) -> list[dict[str, Any]]:
    """Prompts or pairs; every third is the first again."""
    result = []
    for at in range(count):
        text = f"{curating.text(0 if at % 3 == 0 else at)} {at * (at % 3 > 0)}"
        if kind == "prompts":
            prompt = [{"role": "user", "content": text}]
            result.append({"prompt": prompt, "ground_truth": text[:20], "extra_info": {"index": at}})
        else:
            result.append(
                {"id": str(at), "prompt": text, "chosen": text[::-1], "rejected": f"{at}", "score_chosen": at}
            )
    return result


@pytest.mark.parametrize("parts_from", [1 << 40, 1])
@pytest.mark.parametrize("kind", ["prompts", "pairs"])
def test_duplicates_go_and_columns_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, parts_from: int
) -> None:
    monkeypatch.setattr(join, "PARTS_FROM", parts_from)
    monkeypatch.setattr(kept_rows, "BATCH_ROWS", 7)
    monkeypatch.setattr(sink, "BATCH_ROWS", 11)
    if parts_from == 1:
        monkeypatch.setattr(row_files, "SLICING", Slicing(1, open_from=1, cut_from=1))
    folder = clean(tmp_path, records(kind, 60), f"use: {kind}" + ("\nturns: prompt" if kind == "prompts" else ""))
    before = pq.read_table(folder / kind / "mine.parquet")
    curated = curating.curate(tmp_path / "curated", folder / kind, QUIET)
    (path,) = curated.rglob("mine.parquet")
    after = pq.read_table(path)
    kept = [0, *(at for at in range(60) if at % 3)]
    assert pq.ParquetFile(folder / kind / "mine.parquet").num_row_groups == 6
    assert after.to_pylist() == before.take(kept).to_pylist()
    assert after.schema.names == before.schema.names
    assert curating.manifest(curated).ledger.dropped == {"dup_exact": 19}


@pytest.mark.parametrize("kind", ["prompts", "pairs"])
def test_leaks_go(tmp_path: Path, kind: str) -> None:
    some = records(kind, 9)
    leak = f"{curating.text(4)} 4"
    exam = {"q": leak, "a": leak[:20] if kind == "prompts" else leak[::-1]}
    (tmp_path / "exam.jsonl").write_text(json.dumps(exam) + "\n")
    folder = clean(tmp_path, some, f"use: {kind}" + ("\nturns: prompt" if kind == "prompts" else ""))
    said = QUIET + "exact: off\n" + BENCHMARK.format(uri=tmp_path / "exam.jsonl")
    curated = curating.curate(tmp_path / "curated", folder / kind, said)
    (path,) = curated.rglob("mine.parquet")
    texts = pq.read_table(path)["instruction"].to_pylist()
    assert len(texts) == 8
    assert leak not in texts


def test_texts_of_prompts_are_not_changed(tmp_path: Path) -> None:
    some = [{"prompt": [{"role": "user", "content": "Write to anna@example.org."}], "ground_truth": "x"}]
    folder = clean(tmp_path, some, "use: prompts\nturns: prompt")
    with pytest.raises(PairmillError, match="their texts are not changed") as caught:
        curating.curate(tmp_path / "curated", folder / "prompts", QUIET + "pii: {mode: redact}\n")
    assert caught.value.exit_code == 3


def test_they_are_not_tokenized(world: World, tmp_path: Path) -> None:
    folder = clean(tmp_path, records("pairs", 9), "use: pairs")
    curated = curating.curate(tmp_path / "curated", folder / "pairs", QUIET)
    for rows in (folder / "pairs", curated):
        config = TokenizeConfig(rows=[str(rows)], root=str(tmp_path), tokenizer=str(world.tokenizer), workers=1)
        with pytest.raises(PairmillError, match="prompts and pairs are not rows to train on") as caught:
            runner.run(Tokenize(), config)
        assert caught.value.exit_code == 3
