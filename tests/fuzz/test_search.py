"""The fuzzer itself: it finds what is planted, and what it shows is short."""

from pathlib import Path

import pytest

from tests.fuzz.play import Play
from tests.fuzz.process import Wrong
from tests.fuzz.search import shrunk
from tests.fuzz.steps import Give, Kill, Run, Step, Take
from tests.support.helpers import writable


def test_the_fewest_parts_that_fail_are_found_and_made_simpler() -> None:
    tried = []

    def fails(parts: list[int]) -> bool:
        tried.append(parts)
        return any(part < 10 for part in parts) and 17 in parts

    left = shrunk(list(range(40)), fails, simpler=lambda part: (99, -1))
    assert left == [-1, 17]
    assert len(tried) < 40


@pytest.mark.parametrize("planted", ["another byte", "a file more", "another content of a shard"])
def test_what_no_step_did_is_found(planted: str, shm: Path) -> None:
    play = Play(shm, rows=3)
    steps: tuple[Step, ...] = (Take(("quiz.yaml",)), Kill(0.3), Run(), Give("quiz/a.jsonl", 2, 5), Run(verify=True))
    for step in steps:
        step.apply(play)
    # The folder of what is given now is the last one.
    rows = max(play.root.glob("clean/*/data/quiz.jsonl"), key=lambda path: path.stat().st_ctime_ns)
    if planted == "another byte":
        writable(rows).write_bytes(rows.read_bytes().replace(b"a", b"o", 1))
    elif planted == "a file more":
        rows.with_name("more.jsonl").write_bytes(rows.read_bytes())
    else:
        (max(play.root.glob("clean/shards/*/*/data")) / "more").touch()
    with pytest.raises(Wrong):
        Run().apply(play)
