"""The Stack 1.2 (Hub ``bigcode/the-stack``): source code in 358 languages; gated: terms to accept, and a token."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pairmill.engine.options import Profile
from pairmill.formats.row import Row
from pairmill.sources.fields import text_of, time_of
from pairmill.sources.names import safe_name
from pairmill.sources.origin import Hub
from pairmill.sources.parsed import Parsed
from pairmill.sources.source import Context, Source, Unit

_FILE = re.compile(r"(?:.*/)?data/([^/]+)/([^/]+)\.parquet$")


class TheStack(Source):
    """A file of code is a document. One output per raw file, because a language has up to hundreds of gigabytes."""

    name = "the_stack"
    origin = Hub("bigcode/the-stack", ("data/*/*.parquet",), "v1.2")
    licence = "other: terms of the Hub's page; each file has its own licence"
    citation = (
        "Kocetkov, Li, Ben Allal, Li, Mou, Jernite, Mitchell, Muñoz Ferrandis, Hughes, Wolf, Bahdanau, von Werra, "
        "de Vries: The Stack: 3 TB of permissively licensed source code. TMLR 2023, arXiv:2211.15533"
    )
    fields = ("content",)
    optional = ("lang", "max_stars_repo_licenses", "max_stars_repo_stars_event_min_datetime")
    documents = True
    by_name_only = True
    attributes: ClassVar[Mapping[str, str]] = {"language": "text", "licence": "texts", "date": "date", "domain": "text"}

    def units(self, files: Sequence[str], card: str, profile: Profile, options: Any) -> list[Unit]:
        result = [(path, match) for path in files if (match := _FILE.match(path))]
        return [
            Unit(f"data_clustered/the_stack/{safe_name(f'{match[1]}__{match[2]}')}.parquet", (path,))
            for path, match in result
        ]

    def parse(self, record: Any, context: Context) -> Parsed:
        return Row("", "", text_of(record, "content"))

    def attributes_of(self, record: Any, context: Context) -> Mapping[str, Any]:
        return {
            "language": record.get("lang"),
            "licence": record.get("max_stars_repo_licenses"),
            "date": time_of(record.get("max_stars_repo_stars_event_min_datetime")),
            "domain": "code",
        }
