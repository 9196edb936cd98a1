"""Values that nothing can hold, at every key of every settings file and at every option: refused, exit code 2."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

import pairmill.evaluation.settings
import pairmill.mixture.settings
import pairmill.stages.curate.settings
import pairmill.stages.search.settings
import pairmill.stages.select.settings
import pairmill.training.settings
from pairmill.engine.manifest import content_key
from pairmill.errors import UsageError
from pairmill.formats.settings_file import to_json
from pairmill.interface import cli
from pairmill.line.stages import EVERY
from pairmill.rules.book import Rules
from tests.support.helpers import REPOSITORY

FILES: dict[str, Any] = {
    "curate": pairmill.stages.curate.settings.settings_type(),
    "evaluate": pairmill.evaluation.settings.EvaluateSettings,
    "mix": pairmill.mixture.settings.MixSettings,
    "search": pairmill.stages.search.settings.SearchSettings,
    "select": pairmill.stages.select.settings.Settings,
    "train": pairmill.training.settings.TrainSettings,
}
# As YAML. Of no key can they be the value.
HOSTILE = ["-" + "9" * 400, '"\\ud800"', "[" + "9" * 5000 + "]", '{"\\ud800": 1}']
# These may be the value of some key; of others they are refused.
ODD = ["1e999", "9" * 30, '"\\0"', "[]"]


def keys(kind: Any, depth: int = 0) -> Iterator[Callable[[str], str]]:
    """Of each key of a class, also within others and in lists of them: what writes YAML with a value there."""
    for item in dataclasses.fields(kind):
        if not item.init or item.name.startswith("_"):
            continue
        name = item.name.rstrip("_")
        yield lambda value, name=name: f"{{{name}: {value}}}"  # type: ignore[misc]
        for below, listed in inner(get_type_hints(kind)[item.name]) if depth < 5 else ():
            for write in keys(below, depth + 1):
                around = "[{}]" if listed else "{}"
                yield lambda value, name=name, write=write, around=around: (  # type: ignore[misc]
                    f"{{{name}: {around.format(write(value))}}}"
                )


def inner(kind: Any) -> Iterator[tuple[Any, bool]]:
    """The dataclasses that a type can be made of, and whether it is a list of them."""
    if dataclasses.is_dataclass(kind):
        yield kind, False
    elif get_origin(kind) in (Union, types.UnionType):
        for one in get_args(kind):
            yield from inner(one)
    elif get_origin(kind) in (list, tuple):
        yield from ((one, True) for one, _ in inner(get_args(kind)[0]))


@pytest.mark.parametrize("name", FILES)
def test_the_shipped_file_has_the_built_in_defaults(name: str) -> None:
    shipped = (REPOSITORY / "configs" / f"{name}_config.yaml").read_text(encoding="utf-8")
    assert FILES[name].parse(shipped) == FILES[name].load("default") == FILES[name].load("")


@pytest.mark.parametrize("name", FILES)
def test_every_key_of_a_settings_file_refuses_what_nothing_can_hold(name: str, tmp_path: Path) -> None:
    kind, path = FILES[name], tmp_path / f"{name}.yaml"
    writers = list(keys(kind))
    assert len(writers) > 5
    for write in writers:
        for value in HOSTILE:
            path.write_text(f"# a comment\n{write(value)}\n")
            with pytest.raises(UsageError) as caught:
                kind.load(str(path))
            assert "line 2" in caught.value.where, (write(value)[:100], str(caught.value)[:300])
            assert caught.value.expected, (write(value)[:100], str(caught.value)[:300])
            assert len(str(caught.value)) < 2000
        for value in ODD:
            path.write_text(f"{write(value)}\n")
            with suppress(UsageError):
                content_key(to_json(kind.load(str(path))))


@pytest.mark.parametrize("name", ["evaluate", "search", "train"])
def test_an_override_refuses_what_nothing_can_hold(name: str, tmp_path: Path) -> None:
    path = tmp_path / "empty.yaml"
    path.write_text("")
    for item in dataclasses.fields(FILES[name]):
        for value in ["9" * 400, '"\\ud800"']:
            with pytest.raises(UsageError) as caught:
                FILES[name].load(str(path), [f"{item.name}={value}"])
            assert caught.value.exit_code == 2


@pytest.mark.parametrize("key", ["prefix", "max_per_file", "repeat", "max_response_tokens_per_file", "long_context"])
@pytest.mark.parametrize("profile", ["pairmill", "data_io"])
def test_every_key_of_a_rule_refuses_what_nothing_can_hold(key: str, profile: Any, tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    for value in [*HOSTILE, "9" * 30, '"' + "9" * 400 + '"']:
        path.write_text(f"- {{prefix: a, {key}: {value}}}\n")
        refused = False
        try:
            rules = Rules.load(str(path), profile, "prefix_config_path")
            rules.match("a task")
            content_key(rules.digest())
        except UsageError:
            refused = True
        # A text of digits is a prefix like any other, and data_io reads what a task reaches only.
        assert refused or profile == "data_io" or (key == "prefix" and value.startswith('"9')), value[:50]


@pytest.mark.parametrize("name", EVERY)
def test_every_option_refuses_what_nothing_can_hold(name: str) -> None:
    config, required = EVERY[name].config, {}
    for item in dataclasses.fields(config):
        if cli.default_of(item) is dataclasses.MISSING:
            required[item.name] = "x"
    hints = get_type_hints(config)
    for item in dataclasses.fields(config):
        number = hints[item.name] in (int, float)
        for value in ["\ud800", "x\udcff", *(["9" * 400, "-" + "9" * 400, "9" * 5000, 10**400] if number else [])]:
            with pytest.raises(UsageError) as caught:
                cli.build(config, {**required, item.name: value})
            assert item.name in caught.value.where, (item.name, value)
            assert len(str(caught.value)) < 2000
