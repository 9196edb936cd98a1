"""Every stage's report in a real browser, in the frame of Kubeflow's interface: sandboxed, 600 pixels wide."""

import re
from pathlib import Path

import numpy as np
import pytest

from pairmill.audit.core import Audit
from pairmill.engine.manifest import read
from pairmill.interface import stagecli
from pairmill.line.status import Status
from pairmill.report.charts import Bars, Curve, Grouped, Histogram, Stacked
from pairmill.report.model import Report, Samples, Section, Table
from pairmill.stages.curate.report.page import report_of as curate_report
from pairmill.stages.sample.inspect import command as inspect
from pairmill.stages.sample.report import report_of as sample_report
from tests.support.data import curated_folder, roots
from tests.support.processes import chromium
from tests.support.stages import line


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Report]:
    base = tmp_path_factory.mktemp("reports")
    found = {name: run().report() for name, run in line.stages(base).items()}
    inspected = inspect.InspectConfig(path=str(base / "arrays"), ranks=2, batch_tokens=4096)
    (plan,) = (base / "root" / "sample").glob("?" * 16)
    manifest = read(str(plan))
    assert manifest is not None
    audit = Audit()
    audited = stagecli.run(audit, audit.config(plan=str(plan), root=str(base / "root"), rows=30, workers=1)).report()
    return {**found, "inspect": inspect.look(inspected), "plan": sample_report(manifest), "audit": audited}


@pytest.fixture
def status(tmp_path: Path) -> Report:
    """The page over a root, with its lineage drawn."""
    for letters in ("abcdef", "123456"):
        roots.line(str(tmp_path), letters)
    return Status(str(tmp_path)).report(f"{tmp_path}/status.html")


def widest() -> Report:
    """Every kind of block, full of the longest words that there are."""
    long = "ohne" + "𝔏ängste" * 30
    numbers = [(f"{2**bit:,}–{2 ** (bit + 1) - 1:,}", 10**bit) for bit in range(12)]
    return Report(
        "widest",
        {long: 10**15, "fingerprint": "0123456789abcdef" * 4},
        [
            Bars(long, [(f"{long}{index}", 10**index) for index in range(15)], "bytes per token"),
            Stacked(long, [long[:40], "rest"], [(long, (10**14, 10**13))], "records"),
            Grouped(long, [long[:40], "rest"], [(long, (10**14, 10**13))], "records"),
            Table(long, ("Name", "Number " * 9, long), [(long, 10**15, long)] * 3, long),
            Section(
                long,
                [
                    Histogram(long, numbers, "tokens", "rows"),
                    Curve(long, [(256, 1.0), (65536, 4.0)], "tokens", "bytes per token", [("held out", 65536, 3.9)]),
                    Samples(long, [{"tag": long, long: long, "answer": long}], tag="tag"),
                ],
                long,
                unfolded=True,
            ),
        ],
        verdict=f"verdict of {long}",
        look_at=[long],
    )


def test_reports_fit_their_frame_and_ask_for_nothing(reports: dict[str, Report], tmp_path: Path) -> None:
    every = {**reports, "widest": widest()}
    seen = chromium.look({name: report.html() for name, report in every.items()}, tmp_path)
    assert seen.frames.keys() == every.keys()
    for name, frame in seen.frames.items():
        assert chromium.WIDTH - 20 < frame["width"] <= chromium.WIDTH, name  # less what the scroll bar takes
        assert frame["wide"] == [], name
        assert frame["needed"] <= frame["width"], name
        assert frame["verdict"] == every[name].verdict != "", name
        assert frame["bottom"] < 300, f"{name}: the verdict is not what is seen first"
        assert frame["bars"], name
        assert all(width > 450 for width in frame["charts"]), f"{name}: the texts of a chart are shrunk"
    assert sum(len(frame["charts"]) for frame in seen.frames.values()) >= 8
    assert seen.console == []
    assert seen.requests == []


@pytest.mark.parametrize("width", [400, 1280])
def test_every_number_is_seen(
    reports: dict[str, Report], status: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    chromium.resize(monkeypatch, width)
    _, curated = curated_folder.write(tmp_path)
    manifest = read(str(curated))
    assert manifest is not None
    pages = {
        name: report.html() for name, report in {**reports, "curate": curate_report(manifest), "status": status}.items()
    }
    # What is folded is looked at too.
    seen = chromium.look({name: page.replace("<details>", "<details open>") for name, page in pages.items()}, tmp_path)
    assert seen.frames.keys() == pages.keys()
    for name, frame in seen.frames.items():
        assert width - 20 < frame["width"] <= width, name
        assert (frame["cells"], frame["texts"]) == ([], []), f"{name}: {frame['cells'][:3]} {len(frame['cells'])}"
        assert frame["needed"] <= frame["width"], name
        assert frame["verdict"], name
    assert "--n6:&quot;Would go&quot;" in pages["curate"]
    assert seen.frames["status"]["wide"] == []
    assert seen.console == []


def test_paper_has_what_is_folded_on_a_screen(reports: dict[str, Report], status: Report, tmp_path: Path) -> None:
    pages = {name: report.html() for name, report in {**reports, "status": status}.items()}
    assert all("@media print{" in page for page in pages.values())
    screen = chromium.look(pages, tmp_path)
    paper = chromium.look(
        {name: page.replace("@media print{", "@media all{") for name, page in pages.items()}, tmp_path
    )
    assert sum(frame["folded"] for frame in screen.frames.values()) > 0
    for name, frame in paper.frames.items():
        assert (frame["folded"], frame["tables"]) == (0, screen.frames[name]["tables"]), name
        assert frame["texts"] == [], name


def test_rows_are_shown_as_a_model_sees_them(reports: dict[str, Report]) -> None:
    for name, title in (("tokenize", "Rows as a model sees them"), ("plan", "The first rows of epoch 0")):
        page = reports[name].html()
        assert f"<h2>{title}</h2>" in page
        shown = page.split(f"<h2>{title}</h2>")[1].split("<h2>")[0]
        assert 0 < shown.count('class="sample"') <= 6
        assert (
            shown.count("⟦&lt;|im_start|&gt;⟧") == shown.count("⟦&lt;|box_end|&gt;⟧") == shown.count('class="sample"')
        )


def test_what_does_not_fit_or_asks_for_more_is_found(tmp_path: Path) -> None:
    page = Report("t", {}, [Table("t", ("a",), [("b",)])], verdict="here").html()
    bad = {
        "wide": page.replace("<dl>", '<div style="width:900px">wide</div><dl>'),
        "hidden": page.replace('class="verdict"', 'class="verdict" style="visibility:hidden"'),
        "request": page.replace("<dl>", '<img src="/picture.png"><img src="http://elsewhere.test/picture.png"><dl>'),
        "error": page.replace("<dl>", "<script>unknown()</script><dl>"),
    }
    seen = chromium.look(bad, tmp_path)
    assert seen.frames["wide"]["needed"] > chromium.WIDTH
    assert any("900px" in one for one in seen.frames["wide"]["wide"])
    assert seen.frames["hidden"]["verdict"] == ""
    assert seen.frames["error"]["verdict"] == "here"
    assert len(seen.console) == 2
    assert any("http://elsewhere.test/picture.png" in message for message in seen.console)
    assert any("unknown is not defined" in message for message in seen.console)
    assert seen.requests == ["/picture.png"]


@pytest.mark.parametrize("dark", [False, True])
def test_the_lineage_is_drawn_by_day_and_by_night(status: Report, tmp_path: Path, dark: bool) -> None:
    picture = chromium.picture({"status": status.html()}, tmp_path, dark=dark, scale=1)["status"].astype(int)
    colour = np.array((0x7A, 0xA2, 0xF0) if dark else (0x3C, 0x6F, 0xD1))
    # Twelve dots of 78 pixels each, and the strands between them.
    assert (np.abs(picture - colour).max(axis=2) < 40).sum() > 900


@pytest.mark.parametrize("dark", [False, True])
def test_reports_have_ink(reports: dict[str, Report], tmp_path: Path, dark: bool) -> None:
    style = reports["clean"].html()
    by_day, by_night = (
        {name: tuple(bytes.fromhex(value)) for name, value in re.findall(r"--(\w+):#([0-9a-f]{6})", part)}
        for part in style.split("prefers-color-scheme:dark", 1)
    )
    assert by_day.keys() | {"bg"} == by_night.keys()
    colours = by_night if dark else by_day | {"bg": (255, 255, 255)}
    pictures = chromium.picture({name: one.html() for name, one in reports.items()}, tmp_path, dark=dark, scale=0.25)
    assert pictures.keys() == reports.keys()

    def share(name: str, colour: str) -> float:
        """Of the pixels, those that have this colour."""
        return float((abs(pictures[name].astype(int) - colours[colour]) <= 2).all(axis=2).mean())

    for name, image in pictures.items():
        assert image.shape == (chromium.HEIGHT // 4, chromium.WIDTH // 4, 3)
        assert 0.5 < share(name, "bg") < 0.99, name
        assert 0.005 < share(name, "c0") < 0.4, f"{name}: charts without ink"
        texts = image.astype(int).sum(axis=2)
        assert np.ptp(texts[: chromium.HEIGHT // 40]) > 300, f"{name}: no heading"
    for name, colour in (("clean", "c2"), ("sample", "c1")):  # malformed records, responses
        assert share(name, colour) > 0.0002, name
