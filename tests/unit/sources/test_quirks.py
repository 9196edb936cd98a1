"""The defects that are reproduced: each is named once, explained, and looked at by some code."""

import re
from dataclasses import fields

from pairmill.sources.quirks import QUIRKS, Quirks
from tests.support.helpers import REPOSITORY

NAMES = {field.name for field in fields(Quirks)}


def test_data_io_has_every_quirk_and_the_default_profile_has_none() -> None:
    assert len(NAMES) > 20
    assert all(getattr(QUIRKS["data_io"], name) for name in NAMES)
    assert not any(getattr(QUIRKS["pairmill"], name) for name in NAMES)


def test_every_quirk_is_explained_in_the_list_of_differences() -> None:
    text = (REPOSITORY / "docs" / "differences.md").read_text()
    section = text[text.index("## clean") : text.index("## train_tokenizer")]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| ")]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row[1])} == NAMES


def test_every_quirk_is_looked_at_and_no_source_compares_profiles() -> None:
    files = [path for room in ("sources", "stages/clean") for path in (REPOSITORY / "pairmill" / room).rglob("*.py")]
    code = {path: path.read_text() for path in files if path.name != "quirks.py"}
    assert len(code) > 40
    for name in NAMES:
        assert any(f".{name}" in text for text in code.values()), name
    assert [str(path) for path, text in code.items() if re.search(r"profile [!=]= ", text)] == []
