"""YAML files as dataclasses: what is taken, and what each mistake says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import pytest

from pairmill.errors import UsageError
from pairmill.fields import Checked, setting
from pairmill.formats.settings_file import SettingsFile, render, to_json


@dataclass(frozen=True, kw_only=True)
class Bound(Checked):
    """A bound."""

    name: str = setting(help="what it is called", filled=True)
    max: float | None = setting(
        None,
        help="the greatest value that is kept, or none: this line is so long that it does not fit beside the key and "
        "its value",
        at_least=0,
    )
    in_: list[str] | None = setting(None, help="values that are kept", unique=True)


@dataclass(frozen=True, kw_only=True)
class Part(Checked):
    """A part."""

    mode: Literal["drop", "report", "off"] = setting("drop", help="what it does")
    size: int = setting(4, help="how large it is")
    both: Literal["drop", "off"] | dict[str, int] = setting("drop", help="a mode for all, or one for each", at_most=8)


@dataclass(frozen=True, kw_only=True)
class Whole(Checked):
    """All of it."""

    names: list[str] = setting([], help="of something")
    strict: bool = setting(False, help="whether it is")
    part: Part = setting(Part, help="one part")
    bounds: tuple[Bound, ...] = setting((), help="a list", unique="name")


def read(text: str) -> Whole:
    return SettingsFile("file.yaml", text.encode()).onto(Whole())


def test_an_empty_file_has_the_defaults() -> None:
    assert read("") == read("# nothing\n") == read("part:") == Whole()


def test_what_is_written_is_read() -> None:
    said = "names: [a, 'b c']\nstrict: true\npart:\n  mode: off\n  size: 7\nbounds:\n- {name: x, max: 3, in: [p]}\n"
    bounds = (Bound(name="x", max=3.0, in_=["p"]),)
    assert read(said) == Whole(names=["a", "b c"], strict=True, part=Part(mode="off", size=7), bounds=bounds)


def test_a_mode_alone_stands_for_a_part() -> None:
    assert read("part: off").part == Part(mode="off")
    assert read("part: report").part == Part(mode="report")


def test_a_value_may_be_one_of_several_types() -> None:
    assert read("part: {both: {a: 1}}").part.both == {"a": 1}
    assert read("part: {both: off}").part.both == "off"


@pytest.mark.parametrize("written", ["1e5", "1E+5", "1.e5", "1.0e+5", "100_000", "1_00e3"])
def test_a_number_with_an_exponent_is_a_number(written: str) -> None:
    assert read(f"bounds:\n- {{name: a, max: {written}}}").bounds[0].max == 100_000.0


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (
            "nmes: []",
            "file.yaml line 1: unknown key 'nmes'; expected names, strict, part, bounds; did you mean 'names'?",
        ),
        (
            "\npart:\n  sise: 3",
            "file.yaml line 3, in part: unknown key 'sise'; expected mode, size, both; did you mean",
        ),
        ("part: {mode: of}", "file.yaml line 1, part.mode: unknown value; got 'of'; expected drop, report or off; did"),
        ("part: {mode: on}", "line 1, part.mode: unknown value; got 'on'; expected drop, report or off"),
        ("part: {size: x}", "line 1, part.size: not a valid value; got 'x'; expected an integer"),
        ("part: {size: true}", "line 1, part.size: not a valid value; got 'true'; expected an integer"),
        ("part: [1]", "line 1, part: not a mapping; got a list; expected key: value"),
        ("names: a", "line 1, names: not a list; got 'a'; expected a list, such as [a, b]"),
        ("names: [a, 1]", "line 1, names[2]: not a valid value; got '1'; expected text; put it in quotes"),
        ("bounds:\n- {max: 1}", "line 2, bounds[1]: required key missing; got max; expected name"),
        ("bounds:\n- name: a\n  max: -1", "line 3, bounds[1].max: out of range; got -1; expected 0 or more, or null"),
        ("bounds:\n- {name: a, max: .nan}", "line 2, bounds[1].max: not a valid value; got '.nan'; expected a number"),
        ("bounds:\n- {name: a, max: '1e5'}", "line 2, bounds[1].max: not a valid value; got '1e5'; expected a number"),
        ("part: {size: 1e5}", "line 1, part.size: not a valid value; got '1e5'; expected an integer"),
        ("strict: true\nstrict: false", "file.yaml line 2, strict: the key occurs twice"),
        ("names: [", "file.yaml line 1: not valid YAML; got expected the node content"),
        ("- a", "file.yaml line 1: not a mapping; got a list; expected key: value"),
        ("bounds:\n- {name: a}\n- {name: a}", "line 3, bounds[2].name: occurs twice; got 'a'; expected each once"),
        ("bounds:\n- name: a\n  in: [b,\n    b]", "line 4, bounds[1].in[2]: occurs twice; got 'b'"),
        ("part:\n  both:\n    a.b: 1\n    c.d: 9", "line 4, part.both.c.d: out of range; got 9; expected at most 8"),
    ],
)
def test_a_mistake_is_named_with_its_line(said: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(said)
    assert message in str(caught.value)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match="the file does not exist"):
        SettingsFile.load("/nowhere/file.yaml", "settings")


def test_only_some_keys_can_be_changed_of_what_there_is() -> None:
    (part,) = SettingsFile("file.yaml", b"list: [{size: 9}]").items("list")
    assert part.onto(Part(mode="report"), only=["size"]) == Part(mode="report", size=9)
    with pytest.raises(UsageError, match="this one is the same for all rows"):
        part.onto(Part(), only=["mode"])


def test_what_is_rendered_is_read_again_and_has_a_comment_for_each_key() -> None:
    settings = Whole(names=["a", "1", "yes"], part=Part(size=3), bounds=(Bound(name="x"),))
    text = render(settings, "A head\nof two lines")
    assert text.startswith('# A head\n# of two lines\n\nnames: [a, "1", "yes"]')
    assert SettingsFile("file.yaml", text.encode()).onto(Whole()) == settings
    assert sum("#" in line for line in text.splitlines()) == 2 + 7
    assert max(map(len, text.splitlines())) <= 120


def test_json_has_the_keys_of_the_file() -> None:
    assert to_json(Bound(name="x", in_=["a"])) == {"name": "x", "max": None, "in": ["a"]}


def overridden(text: str, *overrides: str) -> Whole:
    file = SettingsFile("file.yaml", text.encode())
    file.override(overrides, "set")
    return file.onto(Whole())


def test_overrides_count_more_than_the_file_and_the_last_one_most() -> None:
    found = overridden("names: [a]\npart: {size: 1, mode: off}", "part.size=2", "names=[b, 'c']", "part.size=3")
    assert found == Whole(names=["b", "c"], part=Part(size=3, mode="off"))
    assert overridden("", "strict=true", "part.mode=report") == Whole(strict=True, part=Part(mode="report"))
    assert overridden("part:", "part.size=2").part.size == 2
    # The items of an option of the command are split at commas.
    assert overridden("", *["names=[a", " b]", "part={size: 2", " mode: off}", "strict=true"]) == Whole(
        names=["a", "b"], part=Part(size=2, mode="off"), strict=True
    )
    assert overridden("part: {size: 1}", "part={mode: off}").part == Part(size=1, mode="off")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("part.size=x", "set=part.size=x: not a valid value; got 'x'; expected an integer"),
        ("part.sise=1", "set=part.sise=1: unknown key 'sise'; expected mode, size, both; did you mean 'size'?"),
        ("names.a=1", "set=names.a=1: not a list; got a mapping"),
        ("strict", "set: not an override; got 'strict'; expected key=value, such as optimizer.lr=0.001"),
        ("part..size=1", "set: not an override"),
        ("names=[", "set=names=[: not valid YAML"),
        ("part.size=", "set=part.size=: not a valid value; got ''; expected an integer"),
    ],
)
def test_a_mistake_in_an_override_is_named_with_it(override: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        overridden("", override)
    assert message in str(caught.value)


@dataclass(frozen=True, kw_only=True)
class Deep:
    part: Part = field(default_factory=Part)
    rate: float = 1e-6
    least: float = 0.0

    def __post_init__(self) -> None:
        if self.part.size > 9:
            raise UsageError("out of range", where="part.size", got=str(self.part.size))


def test_what_is_there_stays_where_parts_are_read_onto_it() -> None:
    def onto(text: str) -> Deep:
        file = SettingsFile("file.yaml", text.encode())
        assert file.top is not None
        found: Deep = file.top.onto(Deep(part=Part(mode="report", size=7)))
        return found

    assert onto("part: {both: off}").part == Part(mode="report", size=7, both="off")
    assert onto("part:\nrate: 1.0").part == Part(mode="report", size=7)
    with pytest.raises(UsageError, match=r"file.yaml line 2, part.size: out of range; got 10"):
        onto("part:\n  size: 10")


def test_small_numbers_are_written_as_yaml_reads_them() -> None:
    text = render(Deep(least=2.5e-20), "A head")
    assert "rate: 1.0e-06" in text
    assert SettingsFile("file.yaml", text.encode()).onto(Deep()) == Deep(least=2.5e-20)
    file = SettingsFile("file.yaml", b"")
    file.override(["rate=1e-3"], "set")
    assert file.onto(Deep()).rate == 0.001
