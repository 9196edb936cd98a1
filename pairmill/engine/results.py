"""The data of manifests as dataclasses: what a stage writes with ``to_data`` others read with ``from_manifest``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, Self

from pairmill.engine.manifest import Manifest
from pairmill.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Result:
    """The base of all."""

    @classmethod
    def from_manifest(cls, manifest: Manifest) -> Self:
        """Read the data of a manifest.

        Raises:
            InputError: it lacks what the stage promises.
        """
        result = cls.find(manifest)
        if result is None:
            lacking = [name for name, default in _defaults(cls).items() if default is MISSING]
            raise InputError(
                f"not a result of {cls.__name__.removesuffix('Result').lower()} of this version",
                where=f"{manifest.stage} {manifest.fingerprint}: data",
                got=", ".join(sorted(manifest.data)) or "nothing",
                expected=", ".join(lacking),
                hint="run that stage again",
            )
        return result

    @classmethod
    def find(cls, manifest: Manifest) -> Self | None:
        """Read the data of a manifest; None if it lacks what the stage promises."""
        defaults = _defaults(cls)
        if any(default is MISSING and name not in manifest.data for name, default in defaults.items()):
            return None
        return cls.from_data(manifest.data)

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Read the data of a manifest that has all that the stage promises."""
        return cls(**{name: data[name] for name in _defaults(cls) if name in data})

    def to_data(self) -> dict[str, Any]:
        """Return the data of the manifest."""
        values = ((item, getattr(self, item.name)) for item in fields(self))
        return {item.name: value for item, value in values if not item.metadata or value != _default(item)}


def left_out(default: Any) -> Any:
    """Make a field that the manifest lacks while it has its default."""
    metadata = {"left out": True}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


def empty() -> Any:
    """Make a field that is an empty mapping by default."""
    return field(default_factory=dict)


def _defaults(kind: type[Result]) -> dict[str, Any]:
    return {item.name: _default(item) for item in fields(kind)}


def _default(item: Field[Any]) -> object:
    return item.default if item.default_factory is MISSING else item.default_factory()


@dataclass(frozen=True, kw_only=True)
class HeldOutRows(Result):
    """Held-out rows by path. Those of training, which the ledger counts as rows out, are beside them."""

    held_out: Mapping[str, int] = left_out({})

    @classmethod
    def count(cls, manifest: Manifest) -> int:
        """Return how many there are."""
        return sum(cls.from_manifest(manifest).held_out.values())
