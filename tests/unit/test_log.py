"""What log lines may show: no secret, and nothing that a terminal obeys."""

import io
import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from pairmill import log
from pairmill.engine.options import RunConfig
from pairmill.errors import InputError, StageFailure
from pairmill.interface import cli
from pairmill.interface.cli import Outcome
from pairmill.redact import escaped, scrubbed
from tests.support.helpers import REPOSITORY, environment

SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
SIGNED = f"https://bucket.s3.amazonaws.com/raw/a%20b.parquet?X-Amz-Credential=AK&X-Amz-Signature={SECRET}&x=1"

LEAKS = [
    SIGNED,
    f"GET <{SIGNED}> failed",
    f"(Caused by {SIGNED}).",
    f"HTTPSConnectionPool(host='h', port=443): Max retries exceeded with url: /k?X-Goog-Signature={SECRET} (Caused by)",
    f'"GET /k?sv=1&sig={SECRET} HTTP/1.1" 403',
    f"https://user:{SECRET.replace('/', '_')}@proxy.example:3128/x".replace("_", "-").replace("+", "-"),
    f"https://{SECRET.replace('/', '-')}@github.com/a/b.git",
    f"https://h/x?a='b'&signature={SECRET}",
    f"https://h/x#access_token={SECRET}",
    f"{{'Authorization': 'Bearer {SECRET}', 'x': 1}}",
    f"authorization: {SECRET}",
    f"Bearer {SECRET}",
    "hf_abcdefghijKLMNOPqrstuv",
]
HARMLESS = [
    "s3://bucket/raw/what?.parquet: is missing",
    "gs://bucket/a?b=c",
    "file:///data/a?b",
    "/data/what?.jsonl row 3: malformed",
    "https://huggingface.co/datasets/a/b/resolve/main/x.parquet: HTTP 404",
    "https://h:8080/x@y",
    "hf://datasets/a/b@main/x",
    "is there a way? yes; token=<|im_start|>, tokenizer=a/b@c",
    "prefix_config_path=/x: the rule file does not exist",
]


@pytest.mark.parametrize("text", LEAKS)
def test_signed_urls_and_passwords_are_cut(text: str) -> None:
    shown = scrubbed(text)
    assert not re.search("EXAMPLEKEY|wJalr|KLMNOP", shown), shown
    assert "…" in shown
    assert scrubbed(shown) == shown


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_stays_as_it_is(text: str) -> None:
    assert scrubbed(text) == text


def test_of_a_url_the_place_is_left() -> None:
    assert scrubbed(f"cannot be had ({SIGNED}), see there") == (
        "cannot be had (https://bucket.s3.amazonaws.com/raw/a%20b.parquet?…), see there"
    )
    assert scrubbed("ftp://me:word@host:21/a/b") == "ftp://…@host:21/a/b"


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "MINIO_SECRET_KEY", "GITHUB_TOKEN", "PGPASSWORD"]
)
def test_values_of_variables_that_hold_secrets_are_cut(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, SECRET)
    assert scrubbed(f"got {SECRET!r}") == "got '…'"
    monkeypatch.setenv(name, "true")
    assert scrubbed("loud=true") == "loud=true"


@pytest.fixture(params=["human", "json"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("PAIRMILL_LOG", request.param)
    monkeypatch.setattr("pairmill.terminal._console", None)
    monkeypatch.setenv("HF_TOKEN", SECRET)
    yield request.param
    monkeypatch.undo()
    log.setup()


def test_no_way_to_the_log_leads_around_it(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    foreign = logging.getLogger("a_library")
    stream = io.StringIO()
    foreign.addHandler(handler := logging.StreamHandler(stream))
    foreign.propagate = False

    def run(options: RunConfig) -> Outcome:
        log.event(f"asking {SIGNED}", url=SIGNED, nested={"list": [SIGNED, 1]}, token=SECRET)
        foreign.warning("asking %s\x1b[2J", SIGNED)
        try:
            raise ValueError(f"403 of {SIGNED}")
        except ValueError as error:
            foreign.exception("oh")
            raise RuntimeError(f"token {SECRET}") from error

    assert cli.main("toy", RunConfig, run, ["root=x"]) == 5
    foreign.removeHandler(handler)
    for text in (capsys.readouterr().err, stream.getvalue()):
        assert "raw/a%20b.parquet?…" in text
        assert SECRET not in text
        assert "Signature" not in text
        assert "\x1b" not in text
        assert "Traceback" in text


HOSTILE = "a\x1b]0;owned\x07\x1b[2J\r\x9b31m\x7f\u202egpj.exe\u2066\b\t[bold red]x[/]\nerror: all is lost"


STAGE = """
import sys
from pairmill import log
from pairmill.interface import cli
from pairmill.errors import InputError
from pairmill.report.model import Report
from pairmill.engine.options import RunConfig
name = sys.argv.pop(1)

def run(options):
    log.event(f"reading {name}")
    log.logger().warning("of %s", name)
    if options.root == "bad":
        raise InputError("is wrong", where=name, got=name)
    if options.root == "odd":
        raise ValueError(name)
    return cli.Outcome("", {"output": name}, {"rows": 5}, lambda: Report(name), lambda: b"")

assert [cli.main("toy", RunConfig, run, [f"root={root}"]) for root in ("good", "bad", "odd")] == [0, 3, 5]
"""


@pytest.mark.parametrize("kind", ["human", "json"])
def test_names_reach_the_terminal_spelt_out(kind: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STAGE, HOSTILE],
        cwd=REPOSITORY,
        env={**environment(), "PAIRMILL_LOG": kind, "COLUMNS": "1000"},
        capture_output=True,
        check=False,
    )
    shown = done.stderr.decode()
    assert done.returncode == 0, shown
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]", shown), repr(shown)
    assert not re.search("^error: all is lost", shown, re.MULTILINE), shown
    assert "[bold red]x[/]" in shown
    if kind == "human":
        assert shown.count(r"a\x1b]0;owned\x07\x1b[2J\r\x9b31m\x7f\u202egpj.exe\u2066\x08\t[bold red]x[/]") >= 6
        assert "Traceback" in shown
    else:
        assert json.loads(shown.splitlines()[0])["message"] == f"reading {HOSTILE}"


def test_the_lines_of_one_message_stay_as_they_are() -> None:
    failure = StageFailure("clean", [("a", InputError("x")), ("b", InputError("y"))], 3)
    assert escaped(str(failure)) == str(failure)
    assert escaped("é 日本 😀 \u200f") == "é 日本 😀 \u200f"


def progressed(monkeypatch: pytest.MonkeyPatch, times: list[float]) -> None:
    """Two of four shards at each of two times."""
    clock = iter([0.0, *times])
    monkeypatch.setattr(log.time, "monotonic", lambda: next(clock))
    log.setup()
    with log.progress("curate 3/14 find exact duplicates", 4, stage="curate", round=3) as progress:
        for _ in times:
            progress.advance(2, 10, 500)


def test_progress_says_how_much_is_left_and_in_the_end_how_long_it_took(
    kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    progressed(monkeypatch, [61.0, 62.5])
    lines = capsys.readouterr().err.splitlines()
    texts = lines if kind == "human" else [json.loads(line)["message"] for line in lines]
    title = "curate 3/14 find exact duplicates"
    assert texts == [f"{title}: 2/4 shards, 01:01 left", f"{title}: 4/4 shards in 62.5 s"]
    if kind == "json":
        first, last = map(json.loads, lines)
        assert (first["stage"], first["round"], first["shards"], first["shards_planned"]) == ("curate", 3, 2, 4)
        assert (first["seconds_left"], last["seconds_left"]) == (61.0, 0.0)
        assert (last["rows"], last["rows_per_second"], last["bytes_per_second"], last["seconds"]) == (20, 0, 16, 62.5)


def test_a_round_of_less_than_a_second_has_a_line_for_a_collector_alone(
    kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    progressed(monkeypatch, [0.5, 0.9])
    assert len(capsys.readouterr().err.splitlines()) == (kind == "json")


def test_durations_are_written_as_on_a_clock() -> None:
    assert [log.clock(seconds) for seconds in (0, 41.4, 59.6, 3599, 3600, 93_784)] == [
        *("00:00", "00:41", "01:00", "59:59", "1:00:00", "26:03:04"),
    ]


def test_without_rich_a_terminal_gets_plain_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.setenv("PAIRMILL_LOG", "human")
    assert not log.draws()
    before = log.logger().handlers[:]
    log.setup()
    try:
        log.event("a\x1b[2J")
        log.event("b", level=logging.WARNING)
        assert capsys.readouterr().err == "a\\x1b[2J\nwarning: b\n"
    finally:
        log.logger().handlers[:] = before
