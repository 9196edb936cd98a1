"""Reports say the command that makes them and lead to each other; when they were made is on the pages of the line."""

from __future__ import annotations

import re
import shlex
from html import unescape
from pathlib import Path

import pytest

from pairmill.engine import usage
from pairmill.lineage import command as lines
from tests.support import tools
from tests.support.stages import line


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with the line, and its pages."""
    base = tmp_path_factory.mktemp("links")
    for run in line.stages(base).values():
        run()
    (clean,) = (base / "root/clean").glob("*/_MANIFEST.json")
    tools.ended(tools.stage("curate", rows=clean.parent, root=base / "root"))
    lines.run(lines.LineConfig(root=str(base / "root")))
    return base / "root"


def pages(root: Path) -> list[Path]:
    """All reports and pages of the line."""
    return [*sorted(root.glob("*/*/report.html")), *sorted((root / "line").glob("*.html"))]


def links(page: Path) -> list[str]:
    """Where a page leads."""
    hrefs = [unescape(one) for one in re.findall(r'href="([^"]*)"', page.read_text())]
    return [href for href in hrefs if not href.startswith("https://")]  # where data sets are published


def test_every_link_of_every_page_is_there(root: Path) -> None:
    found = {page: links(page) for page in pages(root)}
    assert all(found.values())
    for page, some in found.items():
        assert [one for one in some if not (page.parent / one).is_file()] == [], page
    linked = {(page.parent / one).resolve() for page, some in found.items() for one in some}
    assert {page.resolve() for page in pages(root)} == linked
    (curate,) = (root / "curate").glob("*/report.html")
    (clean,) = (root / "clean").glob("*/report.html")
    assert clean.resolve() in {(curate.parent / one).resolve() for one in links(curate)}


def test_the_command_of_a_report_makes_its_folder(root: Path) -> None:
    (report,) = (root / "curate").glob("*/report.html")
    said = re.search(r"<code>(.*?)</code>", report.read_text())
    assert said is not None
    command = unescape(said[1]).replace("$root", str(root))
    assert "pairmill curate rows=" in command
    done = tools.ended(tools.stage("curate", **dict(one.split("=", 1) for one in shlex.split(command)[2:])))
    assert Path(done.out.strip()) == report.parent


def test_only_the_pages_of_the_line_say_when(root: Path) -> None:
    date = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC")
    with_date = [page for page in pages(root) if date.search(page.read_text())]
    assert {page.parent.name for page in with_date} == {"line"}
    assert len(with_date) == 2


def test_the_line_shows_what_its_pods_took(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def page(name: str) -> str:
        uri = str(tmp_path / name)
        lines.run(lines.LineConfig(root=str(root), output=uri))
        return Path(uri).read_text()

    assert "What it took" not in page("before.html")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    another = usage.Usage(pod="b", seconds=3600, cores=2, memory_bytes=0, gpus=1, cpu_seconds=3600, peak_bytes=0)
    (sample,) = (root / "sample").glob("*/_MANIFEST.json")
    for _ in range(2):
        usage.leave(str(sample.parent))
        monkeypatch.setattr(usage, "measure", lambda: another)
    text = page("after.html")
    assert "What it took" in text
    # Two pods; the second had two cores and a GPU for an hour.
    assert re.search(r"<td[^>]*>sample</td>\s*<td[^>]*>2</td>", text)
    assert re.search(r"<td[^>]*>3,6\d\d</td>", text)
