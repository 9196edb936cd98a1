"""The report of a run in a real browser: it fits narrow and wide frames, nothing overlaps, and lines are seen."""

import re
from pathlib import Path

import numpy as np
import pytest

from pairmill.report.model import Report
from pairmill.report.series import Lines, Series
from pairmill.stages.train.report.page import report_of
from tests.support.nets import watched_run
from tests.support.processes import chromium
from tests.unit.stages.train.test_report import NASTY

LONG = "ohne" + "𝔏ängste" * 30
MANY = {f"source_{at}_{'x' * 3 * at}": 1 / 12 for at in range(12)}


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Report]:
    """Of an ordinary run, and of one with many sources and texts that do not want to be cut."""
    found = {}
    for name, steps, sources, text in (("usual", 2000, watched_run.SOURCES, "4"), ("large", 9000, MANY, LONG + NASTY)):
        metrics = watched_run.run(tmp_path_factory.mktemp(name), steps, sources, every=20, text=text)
        outliers = [watched_run.highest(steps // 2, text), watched_run.highest(steps, text)]
        found[name] = report_of(watched_run.manifest(metrics, watched_run.facts(steps, sources), outliers))
    return found


def unfolded(report: Report) -> str:
    return report.html().replace("<details>", "<details open>")


# In a frame of Kubeflow's width: texts of one chart, and pairs of them that cover each other.
OVERLAP = """<script>addEventListener("load", () => {
  const found = [];
  for (const svg of document.querySelectorAll("svg")) {
    const boxes = [...svg.querySelectorAll("text")].filter((one) => one.textContent)
      .map((one) => [one.textContent, one.getBoundingClientRect()]);
    const frame = svg.getBoundingClientRect();
    for (const [name, a] of boxes)
      if (a.left < frame.left - 0.5 || a.right > frame.right + 0.5) found.push("outside: " + name);
    boxes.forEach(([name, a], at) => boxes.slice(at + 1).forEach(([other, b]) => {
      const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      // Boxes of lines of text have room above and below their letters.
      if (wide > 0 && high > 0.3 * Math.min(a.height, b.height)) found.push(name + " on " + other);
    }));
  }
  if (found.length) console.error(JSON.stringify(found));
});</script>"""


# Each dot is drawn, and leads to texts that are seen.
DOTS = """<script>addEventListener("load", () => {
  const dots = [...document.querySelectorAll("svg a")];
  const seen = (item) => item && item.getBoundingClientRect().height > 0;
  const bad = dots.filter((dot) => !seen(dot) || !seen(document.querySelector(dot.getAttribute("href") + " pre")));
  if (!dots.length || bad.length) console.error(`${bad.length} of ${dots.length} dots lead nowhere`);
});</script>"""


@pytest.mark.parametrize("width", [400, 600, 1200])
def test_it_fits_and_nothing_overlaps(
    reports: dict[str, Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    chromium.resize(monkeypatch, width, chromium.HEIGHT)
    seen = chromium.look({name: unfolded(one) + OVERLAP + DOTS for name, one in reports.items()}, tmp_path)
    assert seen.frames.keys() == reports.keys()
    for name, frame in seen.frames.items():
        assert width - 20 < frame["width"] <= width
        assert frame["wide"] == [], name
        assert frame["needed"] <= frame["width"], name
        assert frame["verdict"] == reports[name].verdict != ""
        assert len(frame["charts"]) >= 11
        assert min(frame["charts"]) > (340 if width == 400 else 440), "the texts of a chart are shrunk"
    assert seen.console == []
    assert seen.requests == []


def test_texts_that_overlap_are_found(tmp_path: Path) -> None:
    page = Report("t", {}, [Lines("t", [Series("a", [(1, 1.0), (9, 2.0)])])], verdict="here").html()
    bad = page.replace("</svg>", '<text x="250" y="228">steps over</text></svg>')
    assert bad != page
    (message,) = chromium.look({"bad": bad + OVERLAP}, tmp_path).console
    assert "steps on steps over" in message


@pytest.mark.parametrize("dark", [False, True])
def test_lines_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dark: bool) -> None:
    # Lines far from each other, and a band that is wide enough to be seen beside its own.
    lines = [Series(str(at), [(0, at + 1.0), (100, at + 1.0)]) for at in range(4)]
    lines.append(Series("band", [(0, 7.0), (100, 7.0)], [(5.5, 8.5), (5.5, 8.5)]))
    page = Report("t", {}, [Lines("t", lines, zero=True)], verdict="here").html()
    by_day, by_night = (
        {name: tuple(bytes.fromhex(value)) for name, value in re.findall(r"--(\w+):#([0-9a-f]{6})", part)}
        for part in page.split("prefers-color-scheme:dark", 1)
    )
    colours = {name: np.array(value, float) for name, value in (by_night if dark else by_day).items()}
    ground = colours["bg"] if dark else np.array([255.0, 255.0, 255.0])
    chromium.resize(monkeypatch, 600, 500)
    image = chromium.picture({"chart": page}, tmp_path, dark=dark, scale=1)["chart"].astype(int)
    for at in range(5):
        assert (abs(image - colours[f"c{at}"]) <= 3).all(axis=2).mean() > 0.0005, at
    assert (abs(image - 0.2 * colours["c4"] - 0.8 * ground) <= 3).all(axis=2).mean() > 0.01
