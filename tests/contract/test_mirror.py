"""``tests/unit`` mirrors ``pairmill``: who changes a module knows where its test is."""

from tests.support.helpers import REPOSITORY

UNIT = REPOSITORY / "tests" / "unit"
PACKAGE = REPOSITORY / "pairmill"
AT_THEIR_PLACE = 91
"""Modules with a test at their place. It may rise, and falls with a module that goes."""


def test_modules_have_a_test_at_their_place() -> None:
    # A room may have one for all that is in it.
    places = [path.parent if path.stem == "__init__" else path.with_suffix("") for path in PACKAGE.rglob("*.py")]
    modules = [place.relative_to(PACKAGE) for place in places if place != PACKAGE]
    assert len(modules) > 300
    there = [place for place in modules if (UNIT / place.parent / f"test_{place.name}.py").exists()]
    assert len(there) >= AT_THEIR_PLACE, "a test was moved away from the place of its module"


def test_folders_of_unit_tests_are_rooms_of_the_package() -> None:
    folders = {path.parent.relative_to(UNIT) for path in UNIT.rglob("test_*.py")}
    strangers = sorted(str(folder) for folder in folders if not (PACKAGE / folder).is_dir())
    # What supports the tests has tests too, and so have the examples.
    assert [name for name in strangers if name.split("/")[0] not in ("support", "examples")] == []
