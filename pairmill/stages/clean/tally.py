"""What a person is told of attributes: how many rows have none, their range, and a few values."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

_VALUES = 5
_SHOWN = 60


class AttributesTally:
    """Looks at the attributes of a shard's rows.

    Args:
        types: by name.
    """

    def __init__(self, types: Mapping[str, str]) -> None:
        self._types = types
        self._nulls = [0] * len(types)
        self._found: list[Any] = [{} if kind in ("boolean", "date") else [] for kind in types.values()]

    def add(self, values: tuple[Any, ...], rows: int) -> None:
        """Count the values of a record with some rows."""
        for at, (value, kind) in enumerate(zip(values, self._types.values(), strict=True)):
            if value is None:
                self._nulls[at] += rows
                continue
            result = self._found[at]
            if kind in ("integer", "number"):
                if not result:
                    result += [value, value]
                elif value < result[0]:
                    result[0] = value
                elif value > result[1]:
                    result[1] = value
            elif isinstance(result, dict):
                name = f"{value.year:04}" if isinstance(value, datetime) else str(value).lower()
                result[name] = result.get(name, 0) + rows
            elif len(result) < _VALUES:
                text = value if isinstance(value, str) else ", ".join(filter(None, value[:_VALUES]))
                if text and text[:_SHOWN] not in result:
                    result.append(text[:_SHOWN])

    def summarise(self) -> dict[str, dict[str, Any]]:
        """JSON-like: by name ``nulls`` (rows), and ``found``: [least, largest] of numbers, rows by year or by truth,
        else a few values.
        """
        return {
            name: {"nulls": nulls, "found": result}
            for name, nulls, result in zip(self._types, self._nulls, self._found, strict=True)
        }


def joined(types: Mapping[str, str], shards: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what the shards of a source said together, in the order of ``types``."""
    tallies = list(shards)
    made = []
    for name, kind in types.items():
        result = [item[name]["found"] for item in tallies if name in item]
        together: Any
        if kind in ("integer", "number"):
            ends = [end for item in result for end in item]
            together = [min(ends), max(ends)] if ends else []
        elif kind in ("boolean", "date"):
            names = sorted({name for item in result for name in item})
            together = {name: sum(item.get(name, 0) for item in result) for name in names}
        else:
            together = list(dict.fromkeys(value for item in result for value in item))[:_VALUES]
        nulls = sum(item[name]["nulls"] for item in tallies if name in item)
        made.append({"name": name, "type": kind, "nulls": nulls, "found": together})
    return made
