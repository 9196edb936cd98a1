"""The pages for people: links lead somewhere, every page is two clicks from the README, and commands exist."""

import re
from pathlib import Path

import pytest

from pairmill.interface import command
from pairmill.line.stages import EVERY
from tests.support.helpers import REPOSITORY, python

PAGES = [
    path
    for folder in (".", "docs", "components", "pairmill", "images", "manifests", "examples")
    for path in sorted((REPOSITORY / folder).glob("*.md" if folder == "." else "**/*.md"))
    if path.name != "CHANGELOG.md"
]


def links(page: Path) -> set[Path]:
    """Return the files and folders that a page links to."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    places = re.findall(r"\]\(([^)#\s]+)", text)
    return {(page.parent / place).resolve() for place in places if "://" not in place}


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_lead_to_what_is_there(page: Path) -> None:
    assert [str(target) for target in links(page) if not target.exists()] == []
    for place, anchor in re.findall(r"\]\(([^)#\s:]*)#([^)\s]+)\)", page.read_text(encoding="utf-8")):
        target = (page.parent / place).resolve() if place else page
        if target.suffix == ".md":
            assert anchor in anchors(target), f"{place}#{anchor}"


def test_every_page_is_two_clicks_from_the_readme() -> None:
    first = links(REPOSITORY / "README.md")
    second = {target for page in first if page.suffix == ".md" for target in links(page)}
    reached = first | second | {REPOSITORY / "README.md"}
    wanted = {page for page in PAGES if "decisions" not in page.parts}
    assert len(wanted) > 30
    assert sorted(map(str, wanted - reached)) == []
    assert len((REPOSITORY / "README.md").read_text(encoding="utf-8").splitlines()) <= 160


def test_every_command_that_a_page_names_is_there() -> None:
    known = {*command.PROGRAMS, *EVERY, "stage"}
    named = {
        name
        for page in PAGES
        for name in re.findall(r"(?:^ {4,}|`|\| )pairmill ([a-z_]+)\b", page.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert len(named) >= 15
    assert named - known == {"longer"}  # the stage of the page that adds one


def test_the_help_lists_every_stage_in_the_words_of_its_options() -> None:
    assert {*command.STAGES} == {*EVERY}
    for name, program in command.STAGES.items():
        assert program.summary == (EVERY[name].config.__doc__ or "").strip().splitlines()[0]
    done = python("-X", "importtime", "-m", "pairmill", "--help")
    assert done.returncode == 0
    assert all(f"  {name} " in done.stdout for name in command.PROGRAMS)
    # It imports nothing that takes long: a third of a second is what a person waits for without noticing.
    imported = re.findall(r"\| +(\S+)$", done.stderr, re.MULTILINE)
    assert not {"numpy", "omegaconf", "pyarrow", "pairmill.interface.cli"} & set(imported)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("components.clean", "pairmill clean"),
        ("components.compare", "pairmill stage compare"),
        ("pipelines.local", "pairmill run"),
        ("pipelines.submit", "pairmill submit"),
    ],
)
def test_an_old_command_answers_with_the_new_one(old: str, new: str) -> None:
    done = python("-m", old, "raw=x", "root=y")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"python -m {old} is now a command; write: {new} raw=x root=y\n"


@pytest.mark.parametrize("arguments", [["cleen"], [], ["stage", "run"]])
def test_an_unknown_command_names_the_others(arguments: list[str]) -> None:
    done = python("-m", "pairmill", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "expected chain, clean" in done.stderr or "expected audit, clean" in done.stderr
