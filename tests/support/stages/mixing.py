"""The mix stage over tokenized folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pairmill.engine import runner
from pairmill.engine.manifest import Manifest
from pairmill.engine.runner import Result
from pairmill.mixture.plan import Mixture
from pairmill.mixture.reading import load_mixture
from pairmill.stages.mix.config import MixConfig
from pairmill.stages.mix.core import Mix


def settings(folder: Path, said: str) -> Path:
    """A settings file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "mix.yaml"
    path.write_text(said)
    return path


def result(root: Path, tokenized: Path, said: str, **options: Any) -> Result:
    """Run the stage in this process."""
    given: dict[str, Any] = {"context_size": 200, "epochs": 3, "workers": 1, "prefix_config_path": rules(root)}
    config = MixConfig(
        root=str(root), tokenized_path=str(tokenized), mix_config=str(settings(root, said)), **{**given, **options}
    )
    return runner.run(Mix(), config)


def rules(root: Path, text: str = "[]") -> str:
    """A file of sampling rules."""
    root.mkdir(parents=True, exist_ok=True)
    path = root / "rules.yaml"
    path.write_text(text)
    return str(path)


def mix(root: Path, tokenized: Path, said: str, **options: Any) -> Mixture:
    """The plan that the stage makes."""
    return load_mixture(result(root, tokenized, said, **options).uri)


def manifest(folder: Path) -> Manifest:
    """Of a finished folder."""
    path = folder / "_MANIFEST.json"
    return Manifest.load(path.read_bytes(), str(path))
