"""A run file: options in YAML, as in ``pairmill run run.yaml epochs=4``. What the command line says goes before it.

A stage takes one too: ``pairmill clean clean.yaml workers=4``.

Keys are options. A value is a text or number, a list of them where an option takes several, or a mapping where one
takes ``key=value`` (``set``, ``source_options``). Places are relative to the folder that the command is started in, as
on the command line.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from pairmill.engine.options import list_item
from pairmill.errors import Attempts, PairmillError, Refusals
from pairmill.formats.settings_file import Part, SettingsFile, flow

SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class GivenOptions:
    """Options as texts, by name, and for those of the run file its line."""

    values: dict[str, str]
    places: Mapping[str, str] = field(default_factory=dict)

    def locate(self, error: PairmillError) -> PairmillError:
        """Return the error with the line of the run file, if an option of the file is what is wrong."""
        if isinstance(error, Refusals):
            return Refusals([self.locate(item) for item in error.errors])
        name = re.match("[a-z_]*", error.where)
        place = self.places.get(name[0]) if name else None
        return error if place is None else error.moved(f"{place}, {error.where}")


def is_named(arguments: Sequence[str]) -> bool:
    """Tell whether the first argument is a run file."""
    return bool(arguments) and "=" not in arguments[0] and arguments[0].endswith(SUFFIXES)


def read(path: str, given: Mapping[str, str], lists: Collection[str]) -> GivenOptions:
    """Read a run file.

    Args:
        given: options of the command line.
        lists: the options that take several values, or ``key=value``.

    Raises:
        UsageError: the file does not exist or is not a mapping of options.
    """
    top = SettingsFile.load(path, "run file").top
    values, places = {}, {}
    attempts = Attempts()
    for key, part in (top.entries() if top is not None else {}).items():
        if key not in given and not part.is_null():
            with attempts.each():
                values[key] = _text(part, key in lists)
                places[key] = part.where.rpartition(", ")[0]
    attempts.refuse()
    return GivenOptions({**values, **given}, places)


def _text(part: Part, is_list: bool) -> str:
    """Return a value as the command line has it."""
    if part.is_scalar():
        return str(part.node.value)
    if not is_list:
        key, hint = part.path[-1], "write one value"
        if key.endswith("_config") or key == "policy":
            hint = f"write these settings into a file of their own, and here its name: {key}: {key}.yaml"
        raise part.wrong("not a single value", expected="a text or a number", hint=hint)
    if part.node.id == "mapping":
        return ",".join(list_item(f"{name}={value}") for name, value in _flat(part))
    for item in part.items():
        if not item.is_scalar():
            raise item.wrong("not a single value", expected="a text or a number")
    return ",".join(list_item(str(item.node.value)) for item in part.items())


def _flat(part: Part, above: str = "") -> list[tuple[str, str]]:
    """Return the values of nested mappings by dotted name."""
    result: list[tuple[str, str]] = []
    for key, item in part.entries().items():
        if item.node.id == "mapping":
            result += _flat(item, f"{above}{key}.")
        else:
            result.append((f"{above}{key}", item.node.value if item.is_scalar() else flow(item.plain())))
    return result


def write(values: Mapping[str, object], head: str) -> str:
    """Write options as a run file, a line each."""
    lines = [f"# {line}".rstrip() for line in head.splitlines()]
    return "\n".join([*lines, *(f"{name}: {flow(value)}" for name, value in values.items())]) + "\n"
