"""The report of curate in a real browser: what is side by side fits, and what is marked is seen by day and by night."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pairmill.engine.manifest import Manifest, read
from pairmill.report.charts import Distribution, HeatMap
from pairmill.report.model import Report
from pairmill.report.pairs import Pair, Pairs
from pairmill.stages.curate.report.page import report_of
from tests.support.data import curated_folder
from tests.support.processes import chromium

LONG = "ohne" + "𝔏ängste" * 30


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    found = read(str(curated_folder.write(tmp_path)[1]))
    assert found is not None
    return found


def large(manifest: Manifest) -> Manifest:
    """The same with long names, large numbers and many sources."""
    data: dict[str, Any] = manifest.data
    names = [f"source_{number}_{'x' * number}" for number in range(30)]
    data["matrix"] = {name: {other: 10**number for number, other in enumerate(names[:12])} for name in names}
    data["sources"] = {name: {"rows": 10**11, "kept": 10**10, "dropped": {"dup_near": 9 * 10**10}} for name in names}
    data["samples"]["near.strong"][0] |= {"instruction": LONG * 3, "other_response": LONG * 3, "task": LONG}
    data["histograms"]["heuristics.r_url_ratio"] |= {"counts": [10**12, 1, 0, 10**9]}
    return manifest


def widest() -> Report:
    """The blocks of this report, full of the longest words that there are."""
    counts = {f"{LONG}{line}": {f"{LONG}{column}": 10**column for column in range(14)} for line in range(14)}
    return Report(
        "widest",
        {},
        [
            HeatMap(LONG, counts, LONG, LONG, "rows", LONG),
            Distribution(LONG, [10**12, 3], [0.0, 1e-9, 1e12], 1e-9, 1e12, "ratio", "rows"),
            Pairs(LONG, [Pair(LONG, f"{LONG}2", [(LONG, f"{LONG} a {LONG}", f"{LONG} b {LONG}")], LONG)], LONG),
        ],
        verdict="verdict",
    )


def unfolded(report: Report) -> str:
    """The page with all that folds open, so that it is looked at."""
    return report.html().replace("<details>", "<details open>")


def test_it_fits_its_frame_and_asks_for_nothing(manifest: Manifest, tmp_path: Path) -> None:
    reports = {"small": report_of(manifest), "large": report_of(large(manifest)), "widest": widest()}
    seen = chromium.look({name: unfolded(report) for name, report in reports.items()}, tmp_path / "browser")
    assert seen.frames.keys() == reports.keys()
    for name, frame in seen.frames.items():
        assert frame["wide"] == [], name
        assert frame["needed"] <= frame["width"], name
        assert frame["verdict"] == reports[name].verdict != ""
        assert frame["bottom"] < 300, f"{name}: the verdict is not what is seen first"
        assert frame["charts"], name
        assert all(width > 450 for width in frame["charts"]), f"{name}: the texts of a chart are shrunk"
    assert seen.console == []
    assert seen.requests == []


def colours(page: str, *, dark: bool) -> dict[str, tuple[int, ...]]:
    """The colours of the style by name."""
    by_day, by_night = (
        {name: tuple(bytes.fromhex(value)) for name, value in re.findall(r"--(\w+):#([0-9a-f]{6})", part)}
        for part in page.split("prefers-color-scheme:dark", 1)
    )
    return by_night if dark else {**by_day, "bg": (255, 255, 255)}


def share(image: NDArray[np.uint8], colour: tuple[int, ...]) -> float:
    """Of the pixels, those that have this colour."""
    return float((abs(image.astype(int) - colour) <= 2).all(axis=2).mean())


def luminance(colour: NDArray[np.float64]) -> float:
    """Relative luminance of an sRGB colour (WCAG 2)."""
    linear = np.where(colour <= 10.31, colour / 255 / 12.92, ((colour / 255 + 0.055) / 1.055) ** 2.4)
    return float(linear @ (0.2126, 0.7152, 0.0722))


@pytest.mark.parametrize("dark", [False, True])
def test_marks_and_heat_are_seen_and_can_be_read(tmp_path: Path, dark: bool) -> None:
    words = " ".join(["same"] * 20)
    blocks = {
        "pairs": Pairs("p", [Pair("a:0", "b:0", [("text", f"{words} left {words}", f"{words} right {words}")])]),
        "heat": HeatMap("h", {f"l{line}": {f"c{c}": 10 ** (5 - c) for c in range(6)} for line in range(9)}, "l", "c"),
        "bounds": Distribution("d", [5, 9, 4, 3], [0.0, 0.2, 0.4, 0.6, 1.0], 0.2, 0.6, "ratio", "rows"),
    }
    pages = {name: Report(name, {}, [block], "verdict").html() for name, block in blocks.items()}
    images = chromium.picture(pages, tmp_path, dark=dark, scale=1)
    known = colours(pages["pairs"], dark=dark)
    assert share(images["pairs"], known["mark"]) > 0.0003
    for name in ("c0", "c1", "c2"):  # kept, dropped, and the lines of the bounds
        assert share(images["bounds"], known[name]) > 0.0002, name
    # The darkest cell is at most 55 per cent of the colour: text on it has the contrast that WCAG asks for.
    ink, paper, colour = (np.array(known[name], float) for name in ("ink", "bg", "c0"))
    darkest = 0.55 * colour + 0.45 * paper
    assert share(images["heat"], tuple(darkest.round().astype(int))) > 0.001
    assert share(images["heat"], known["bg"]) > 0.5
    for ground in (darkest, np.array(known["mark"], float)):
        bright, dim = sorted((luminance(ink), luminance(ground)), reverse=True)
        assert (bright + 0.05) / (dim + 0.05) > 4.5
