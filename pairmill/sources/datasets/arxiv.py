"""arXiv abstracts to 2021 (Hub ``gfissore/arxiv-abstracts-2021``): titles and abstracts of two million papers."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pairmill.engine.options import Profile
from pairmill.formats.row import Row
from pairmill.sources.fields import text_of
from pairmill.sources.origin import Hub
from pairmill.sources.parsed import Drop, Parsed
from pairmill.sources.source import Context, Source, Unit

_FILE = "arxiv-abstracts.jsonl"
_ID = re.compile(r"(?:.*/)?(\d\d)(0[1-9]|1[0-2])(?:\.\d{4,5}|\d{3})(?:v\d+)?")
_FIRST_YEAR = 91
"""arXiv began in 1991."""


class Arxiv(Source):
    """A paper is a document: title, an empty line, abstract, each with its white space joined.

    The month comes from the number of the paper, new (``0704.0001``) or old (``math/0309136``).
    """

    name = "arxiv"
    origin = Hub("gfissore/arxiv-abstracts-2021", (f"{_FILE}.gz",))
    licence = "CC0-1.0"
    citation = (
        "Clement, Bierbaum, O'Keeffe, Alemi: On the Use of ArXiv as a Dataset. 2019, arXiv:1905.00075; arXiv.org, "
        "abstracts to 2021"
    )
    fields = ("title", "abstract")
    optional = ("id", "categories")
    output = "data_clustered/arxiv/all.parquet"
    documents = True
    by_name_only = True
    attributes: ClassVar[Mapping[str, str]] = {"date": "date", "categories": "texts", "domain": "text"}

    def units(self, files: Sequence[str], card: str, profile: Profile, options: Any) -> list[Unit]:
        result = [path for path in files if path.rpartition("/")[2] in {_FILE, f"{_FILE}.gz"}]
        return [Unit(self.output, tuple(result))]

    def parse(self, record: Any, context: Context) -> Parsed:
        title, abstract = (" ".join(text_of(record, key).split()) for key in ("title", "abstract"))
        if not abstract:
            return Drop("no_abstract")
        return Row("", "", f"{title}\n\n{abstract}" if title else abstract)

    def attributes_of(self, record: Any, context: Context) -> Mapping[str, Any]:
        return {
            "date": _month(record.get("id")),
            "categories": _categories(record.get("categories")),
            "domain": "academic",
        }


def _month(number: Any) -> str | None:
    match = _ID.fullmatch(number) if isinstance(number, str) else None
    if match is None:
        return None
    year = int(match[1])
    return f"{1900 + year if year >= _FIRST_YEAR else 2000 + year}-{match[2]}-01"


def _categories(value: Any) -> list[str] | None:
    """Categories, published as a list of one text with spaces between them, or as one text."""
    texts = [value] if isinstance(value, str) else value if isinstance(value, list) else None
    return None if texts is None else [word for text in texts if isinstance(text, str) for word in text.split()]
