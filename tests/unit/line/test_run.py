"""How much of the line a process runs: ``upto=`` and ``share=``."""

import pytest

from pairmill.errors import UsageError
from pairmill.interface import cli
from pairmill.line import run
from pairmill.line.table import HELD_OUT, LINE


def extent(**options: str) -> run.Extent:
    return cli.build(run.Extent, options)


def test_a_line_ends_after_the_last_task_of_a_stage() -> None:
    assert extent().tasks() == LINE
    assert [task.name for task in extent(upto="curate").tasks()] == ["fetch", "clean", "curate"]
    assert [task.name for task in extent(upto="sample").tasks()][-2:] == ["sample", HELD_OUT]


def test_of_the_last_stage_alone_a_share_is_done_and_the_first_one_finishes() -> None:
    clean, curate = LINE[1:3]
    assert extent(upto="curate", share="1/3").shared(curate) == {"share": "1/3", "finish": True}
    assert extent(upto="curate", share="3/3").shared(curate) == {"share": "3/3", "finish": False}
    assert extent(upto="curate", share="3/3").shared(clean) == {}
    assert extent(upto="curate").shared(curate) == {}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"upto": "fetch", "share": "1/2"}, "upto: cannot be shared; got fetch; expected clean, curate"),
        ({"share": "1/2"}, "share: needs upto"),
        ({"upto": "claen"}, "did you mean 'clean'"),
        ({"upto": "clean", "share": "3/2"}, "not a valid share"),
        ({"upto": "clean", "dry_run": "true"}, "upto: cannot be given with dry_run"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        extent(**options).tasks()
