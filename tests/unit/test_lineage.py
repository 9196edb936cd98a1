"""The page over the line, made of manifests alone."""

import json
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pairmill.engine.manifest import MANIFEST, InputRef, Ledger, Manifest
from pairmill.errors import InputError
from pairmill.formats import means
from pairmill.formats.means import Means
from pairmill.lineage import command as line
from pairmill.lineage import page, steps

TASKS = {"web__a.parquet": (100, 40), "web__b.parquet": (60, 30), "books.jsonl": (40, 40)}
"""Rows cleaned and kept."""


def ledgers(rows: dict[str, tuple[int, int]], reason: str) -> dict[str, Ledger]:
    return {name: Ledger(before, after, after, {reason: before - after}) for name, (before, after) in rows.items()}


def write(root: Path, folder: str, manifest: Manifest) -> None:
    target = root / folder / manifest.fingerprint
    target.mkdir(parents=True)
    (target / MANIFEST).write_bytes(manifest.dump())


def made(root: Path, number: int = 1, *, select: bool = True, role: str = "tokenized") -> Manifest:
    """A line of five finished folders; returns the sample's manifest."""
    cleaned = {"data_clustered/web/a.parquet": 100, "data_clustered/web/b.parquet": 60, "data/books.jsonl": 40}
    whole = Ledger(210, 200, 200, {"malformed": 10})
    held = {"holdout/data/books.jsonl": 7}
    write(root, "clean", Manifest("clean", 1, "c" * 16, {}, [], whole, [], {}, {"outputs": cleaned | held}))
    parts = ledgers({name: (before, after + 10) for name, (before, after) in TASKS.items()}, "dup_near")
    parts["holdout/books.jsonl"] = Ledger(7, 7, 0, notes={"for_evaluation": 7})
    found = Manifest("curate", 1, "d" * 16, {}, [InputRef("rows", "c" * 16)], Ledger.sum(parts.values()), [], parts, {})
    write(root, "curate", found)
    parts = ledgers({name: (after + 10, after) for name, (_, after) in TASKS.items()}, "not_selected_dsir")
    score = {"quality.good": {"web": [90, 18.0, 70, 21.0], "books": [50, 40.0, 40, 36.0]}}
    said = {"settings": {"attributes": {"where": [], "score": []}}, "means": score}
    total = Ledger.sum(parts.values())
    write(root, "select", Manifest("select", 1, "e" * 16, {}, [InputRef("rows", "d" * 16)], total, [], parts, said))
    kept = {
        name: Ledger(after, after, after, measures={"response_tokens": 10 * after})
        for name, (_, after) in TASKS.items()
    }
    rows = InputRef("rows", ("e" if select else "9") * 16)
    inputs = [rows, InputRef("tokenizer", "f" * 16)]
    write(root, "tokenize", Manifest("tokenize", 1, "a" * 16, {}, inputs, Ledger.sum(kept.values()), [], kept, {}))
    stats = {
        name: {"cov_rows": after * (5 if name == "books.jsonl" else 1), "cov_rtoks": after * 10}
        for name, (_, after) in TASKS.items()
    }
    ledger = Ledger(110, 110, 270, measures={"epochs": 2})
    refs = [InputRef(role, "a" * 16), InputRef("rules", "b" * 16)]
    sample = Manifest(
        "sample", 1, f"{number:016x}", {}, refs, ledger, [], {}, {"stats": stats, "sources": [], "layout": "v1"}
    )
    write(root, "sample", sample)
    return sample


def test_rows_are_followed_by_source_through_every_stage(tmp_path: Path) -> None:
    found = steps.find(str(tmp_path), made(tmp_path))
    assert [step.stage for step in found] == ["clean", "curate", "select", "tokenize", "sample"]
    counts = [steps.by_source(step.rows) for step in found]
    # Held-out rows are those of no training.
    assert counts[:3] == [{"web": 160, "books": 40}, {"web": 90, "books": 50}, {"web": 70, "books": 40}]
    assert counts[4] == {"web": 70, "books": 200}
    report = page.report_of(found)
    text = report.markdown()
    assert "| web | 80.0% | 64.3% | 63.6% | 63.6% | 25.9% |" in text
    assert "| select | not selected dsir | 30 | 21.4% |" in text
    assert "| clean | malformed | 10 | 4.8% |" in text
    assert "Mixture" not in text
    assert report.html().startswith("<!doctype")


def test_means_of_a_sample_are_those_of_its_sources_by_what_is_drawn(tmp_path: Path) -> None:
    text = page.report_of(steps.find(str(tmp_path), made(tmp_path))).markdown()
    before, kept = 58 / 140, 57 / 110
    sampled = (70 * 0.3 + 200 * 0.9) / 270
    assert f"| quality.good | {before:.4g} | {kept:.4g} | {sampled:.4g} |" in text


def test_what_is_not_below_the_root_is_left_out(tmp_path: Path) -> None:
    sample = made(tmp_path, select=False)
    found = steps.find(str(tmp_path), sample)
    assert [step.stage for step in found] == ["tokenize", "sample"]
    text = page.report_of(found).markdown()
    assert "110 rows after tokenize of 2 sources" in text
    (section,) = page.section_of(found)
    assert "not selected" not in "\n".join(section.markdown(2))
    assert page.section_of(found[1:]) == []


def test_the_program_writes_one_page_for_each_sample(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert line.main([f"root={tmp_path}"]) == 3
    assert "there is no finished sample" in capsys.readouterr().err
    made(tmp_path, 1)
    assert line.main([f"root={tmp_path}"]) == 0
    uri = capsys.readouterr().out.split()[-1]
    assert uri.endswith(f"line/{1:016x}.html")
    stamp = Path(uri).stat().st_mtime_ns
    assert line.main([f"root={tmp_path}"]) == 0
    assert Path(uri).stat().st_mtime_ns == stamp  # the same page is left as it is
    for number, role in ((2, "tokenized"), (3, "held_out")):
        other = Manifest.load((tmp_path / "sample" / f"{1:016x}" / MANIFEST).read_bytes(), "")
        other.fingerprint = f"{number:016x}"
        other.inputs.append(InputRef(role, "0" * 16))
        write(tmp_path, "sample", other)
    with pytest.raises(InputError, match="which sample is meant") as caught:
        steps.last(str(tmp_path))
    assert f"{2:016x}" in str(caught.value)
    assert f"{3:016x}" not in str(caught.value)  # held-out rows are not trained on
    assert line.main([f"root={tmp_path}", f"sample={2:016x}", f"output={tmp_path}/page.html"]) == 0
    assert f"{2:016x}" in (tmp_path / "page.html").read_text()


def test_runs_on_the_sample_are_on_its_page(tmp_path: Path) -> None:
    sample = made(tmp_path)
    assert steps.runs(str(tmp_path), sample) == []
    last = {"step": 90, "tokens": 1234, "heldout_loss": 2.5}
    data = {"net": "hrm B", "parameters": 4321, "last": last, "end": {"loss": 2.25}}
    for number, ref in ((1, sample.fingerprint), (2, "0" * 16)):
        refs = [InputRef("sampled", ref)]
        write(tmp_path, "train", Manifest("train", 1, f"{number:016x}", {}, refs, Ledger(), [], {}, data))
    (tmp_path / "train" / "shards").mkdir()
    text = line.report(str(tmp_path), sample).markdown()
    assert f"| {1:016x} | hrm B | 4,321 | 90 | 1,234 | 2.2500 | 2.5000 | – |" in text
    assert f"{2:016x}" not in text


def test_means_are_the_same_however_rows_are_cut() -> None:
    rng = np.random.default_rng(3)
    values = rng.normal(size=1000) * 10.0 ** rng.integers(-8, 8, 1000)
    table = pa.table(
        {
            "x": pa.array([None if at % 7 == 0 else float(value) for at, value in enumerate(values)]),
            "day": pa.array([86_400_000_000 * at for at in range(1000)], pa.timestamp("us", "UTC")),
            "yes": pa.array([at % 2 == 0 for at in range(1000)]),
            "text": pa.array(["a"] * 1000),
        }
    )
    kept = pa.array([at % 3 == 0 for at in range(1000)])
    parts = []
    for start, stop in ((0, 300), (300, 1000)):
        one = Means("set__a.jsonl")
        batch = table.slice(start, stop - start).combine_chunks().to_batches()[0]
        one.add("op", batch, batch.filter(kept.slice(start, stop - start)))
        parts.append({"means": json.loads(json.dumps(one.data()))})
    found = means.joined([{}, *parts])
    assert found == means.joined([*reversed(parts), {"means": {}}])
    assert set(found) == {"op.x", "op.day", "op.yes"}
    wanted = [value for value in table["x"].to_pylist() if value is not None]
    rows, total, *_ = found["op.x"]["set"]
    assert (rows, total) == (len(wanted), pytest.approx(math.fsum(wanted)))
    assert found["op.yes"]["set"] == [1000, 500, 334, 167]
    assert found["op.day"]["set"][1] / 1000 == pytest.approx(1970 + 999 / 2 / 365.2425)


def test_a_union_is_looked_through(tmp_path: Path) -> None:
    sample = made(tmp_path)
    write(tmp_path, "union", Manifest("union", 1, "7" * 16, {}, [InputRef("tokenized", "a" * 16)], Ledger(), []))
    of_union = Manifest(**{**vars(sample), "inputs": [InputRef("tokenized", "7" * 16)]})
    assert [step.stage for step in steps.find(tmp_path.as_posix(), of_union)] == [
        step.stage for step in steps.find(tmp_path.as_posix(), sample)
    ]
