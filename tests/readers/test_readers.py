"""Exports and cards, read by programs that nobody here wrote."""

from __future__ import annotations

import logging
from pathlib import Path

import mlcroissant
import numpy as np
import pytest
from litdata import StreamingDataset
from megatron.core.datasets.indexed_dataset import IndexedDataset

from pairmill.export.command import ExportConfig, run
from pairmill.publish.command import PublishConfig
from pairmill.publish.command import run as publish
from tests.support.data import samples
from tests.support.data.cleaned_folder import put_rows
from tests.support.data.samples import arrays

LENGTHS = [[(3, 2), (1, 5), (4, 4)] * 400, [(2, 2), (7, 1)] * 300]


@pytest.fixture
def sampled(tmp_path: Path) -> Path:
    return samples.sampled(tmp_path / "sampled", LENGTHS)


def rows_of(folder: Path, epoch: int) -> list[tuple[list[int], int]]:
    ids, index = arrays(folder, epoch)
    return [(ids[a : a + b].tolist() + ids[c : c + d].tolist(), int(b)) for a, b, c, d in zip(*index, strict=True)]


def export(folder: Path, to: str, part_tokens: int = 0) -> Path:
    output = folder.with_name(to)
    run(ExportConfig(result=str(folder), to=to, output=str(output), part_tokens=part_tokens))  # type: ignore[arg-type]
    return output


@pytest.mark.parametrize("vocab_size", [500, 131_072])
def test_megatron_core_reads_rows_as_documents(tmp_path: Path, vocab_size: int) -> None:
    folder = samples.sampled(tmp_path / "sampled", LENGTHS, ids=vocab_size, dtype=np.int32)
    made = export(folder, "megatron")
    for epoch in (0, 1):
        prefix = str(made / f"epoch_{epoch}" / f"epoch_{epoch}")
        assert IndexedDataset.exists(prefix)
        data, rows = IndexedDataset(prefix), rows_of(folder, epoch)
        assert data.index.dtype == (np.uint16 if vocab_size < 65_500 else np.int32)
        assert [data[number].tolist() for number in range(len(data))] == [ids for ids, _ in rows]
        assert data.document_indices.tolist() == list(range(len(rows) + 1))


@pytest.mark.parametrize("part_tokens", [0, 700])
def test_litdata_streams_rows_in_order(sampled: Path, part_tokens: int) -> None:
    made = export(sampled, "litdata", part_tokens)
    data, rows = StreamingDataset(str(made / "epoch_1")), rows_of(sampled, 1)
    assert len(data) == len(rows)
    for item, (ids, prompt) in zip(data, rows, strict=True):
        assert item["input_ids"].tolist() == ids
        assert item["labels"].tolist() == [-100] * prompt + ids[prompt:]


def test_the_validator_of_croissant_finds_nothing_wrong(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    result = put_rows(tmp_path / "result", {"some": 7, "other": 3})
    to = tmp_path / "public"
    publish(PublishConfig(result=str(result), to=str(to), confirm=True))
    with caplog.at_level(logging.WARNING):
        data = mlcroissant.Dataset(jsonld=str(to / "croissant.json"))
    warnings = [record.message for record in caplog.records]
    assert not [text for text in warnings if "context" in text]
    assert not data.metadata.issues.errors
    assert {item.name for item in data.metadata.record_sets} == {"some/data/some.parquet", "other/data/other.parquet"}
