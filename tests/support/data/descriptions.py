"""YAML files that describe a source, written and loaded for a test."""

from collections.abc import Callable, Mapping
from pathlib import Path

from pairmill.sources.language import mapped
from pairmill.sources.source import Source

Load = Callable[..., Source]


def loader(folder: Path, common: Mapping[str, str]) -> Load:
    """Loads a file of the common keys and those that it is called with; None leaves one out."""

    def loaded(**changed: str | None) -> Source:
        path = folder / "mine.yaml"
        keys = {key: value for key, value in {**common, **changed}.items() if value is not None}
        path.write_text("".join(f"{key}: {value}\n" for key, value in keys.items()), "utf-8")
        return mapped.load(str(path))

    return loaded
