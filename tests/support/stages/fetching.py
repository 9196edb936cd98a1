"""What the tests of fetch share: a source of any origin, the stage in this process, the Hub that this process asks."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pairmill.engine import runner
from pairmill.engine.options import Profile
from pairmill.formats.rows import Row
from pairmill.sources.datasets import SOURCES
from pairmill.sources.files.raw import places
from pairmill.sources.origin import Origin
from pairmill.sources.parsed import Malformed, Parsed
from pairmill.sources.source import Context, Source, Unit
from pairmill.stages.clean.config import CleanConfig
from pairmill.stages.clean.core import Clean
from pairmill.stages.fetch.config import FetchConfig
from pairmill.stages.fetch.core import Fetch
from tests.support.servers.downloads import Hub


class Made(Source):
    """JSON Lines or Parquet of question and answer, from anywhere."""

    licence = "CC0-1.0"
    citation = "Nobody: Made. 2026"

    def __init__(self, name: str, origin: Origin) -> None:
        vars(self).update(name=name, origin=origin)

    def units(self, files: Sequence[str], card: str, profile: Profile, options: Any) -> list[Unit]:
        found = tuple(path for path in files if path.endswith((".jsonl", ".parquet")))
        return [Unit(f"data/{self.name}.jsonl", found)] if found else []

    def parse(self, record: Any, context: Context) -> Parsed:
        if not isinstance(record, dict) or record.keys() != {"question", "answer"}:
            return Malformed("not_question_and_answer")
        return Row("direct", record["question"], record["answer"])


def lines(count: int, seed: int = 0) -> bytes:
    """Records for :class:`Made`."""
    rows = [{"question": f"What is {seed} + {number}?", "answer": str(seed + number)} for number in range(count)]
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def declare(monkeypatch: pytest.MonkeyPatch, origin: Origin, name: str = "made") -> Source:
    """Make a source known to the stages of this process."""
    source = Made(name, origin)
    monkeypatch.setitem(SOURCES, name, source)
    return source


def ask_here(monkeypatch: pytest.MonkeyPatch, hub: Hub, home: Path) -> None:
    """Let huggingface_hub of this process, which reads the environment when it is imported, ask this Hub alone."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    template = f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(home / "token"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.delenv("HUGGING_FACE_HUB_TOKEN", raising=False)


def fetch(root: Path, *sources: str, **options: Any) -> runner.Result:
    """Run fetch in this process."""
    options = {"root": str(root), "sources": list(sources) or ["made"], "workers": 1, **options}
    return runner.run(Fetch(), FetchConfig(**options))


def clean(root: Path, raw: str | Path, *sources: str) -> dict[str, bytes]:
    """Run clean in this process; the outputs by path."""
    result = runner.run(
        Clean(), CleanConfig(root=str(root), raw=str(raw), sources=list(sources) or ["made"], workers=1)
    )
    return {
        file.path: (Path(result.uri) / file.path).read_bytes()
        for file in result.manifest.files
        if file.path.startswith("data")
    }


def index(result: runner.Result, source: str = "made") -> dict[str, Any]:
    """What the index of a result says of a source."""
    found: dict[str, Any] = json.loads((Path(result.uri) / "sources" / f"{source}.json").read_bytes())
    return found


def fetched(result: runner.Result, source: str = "made") -> dict[str, bytes]:
    """The raw files that a result names, by path."""
    entry = index(result, source)
    where = places(result.uri).get(source)
    folder = Path(where) if where else Path(result.uri).parents[1] / entry["path"]
    return {file["path"]: (folder / file["path"]).read_bytes() for file in entry["files"]}
