"""The memory of a run, estimated by two samples of it."""

import pytest

from pairmill.line.dry_run import _memory
from pairmill.line.measured import MemoryUsed

MEASURED = {
    "clean": ((210, 48, 80), (270, 51, 124), 290),
    "curate": ((238, 66, 89), (461, 141, 189), 548),
    "train_tokenizer": ((134, 75, 47), (161, 102, 67), 196),
    "tokenize": ((191, 92, 53), (295, 148, 84), 295),
    "sample": ((57, 57, 0), (79, 79, 0), 93),
}
"""MB on two cores of 3 x 256 and 3 x 32,768 records, and of all of 1 GB of chats and pairs (180 M tokens)."""


@pytest.mark.parametrize("stage", MEASURED)
def test_memory_of_a_gigabyte_is_within_one_and_a_half(stage: str) -> None:
    first, second, whole = MEASURED[stage]
    assert 1 / 1.5 < _memory(MemoryUsed(*first), MemoryUsed(*second), 4.8, 2) / whole < 1.5
