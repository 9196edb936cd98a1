"""C4 (Hub ``allenai/c4``, config ``en``): English web pages; 1,024 files of compressed lines, one output each."""

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

_FILE = re.compile(r"(?:.*/)?(?:en/)?c4-(train|validation)\.[^/]*\.json(?:\.gz)?$")
_OTHERS = re.compile(r"(?:.*/)?(?:en\.\w+|realnewslike|multilingual)/")


class C4(Source):
    """A page is a document. The validation split is not trained on: its records are counted, if it is there."""

    name = "c4"
    origin = Hub("allenai/c4", ("en/c4-train.*.json.gz",))
    licence = "ODC-BY"
    citation = (
        "Raffel, Shazeer, Roberts, Lee, Narang, Matena, Zhou, Li, Liu: Exploring the Limits of Transfer Learning with "
        "a Unified Text-to-Text Transformer. JMLR 2020, arXiv:1910.10683"
    )
    fields = ("text",)
    optional = ("timestamp", "url")
    documents = True
    by_name_only = True
    attributes: ClassVar[Mapping[str, str]] = {"date": "date", "url": "text", "domain": "text"}

    def units(self, files: Sequence[str], card: str, profile: Profile, options: Any) -> list[Unit]:
        split = {path: match[1] for path in files if (match := _FILE.match(path)) and not _OTHERS.match(path)}
        result = [
            Unit(f"data_clustered/c4/{safe_name(path.rpartition('/')[2].split('.json')[0])}.parquet", (path,))
            for path in split
            if split[path] == "train"
        ]
        withheld = tuple(path for path in split if split[path] == "validation")
        return result + ([Unit("data_clustered/c4/validation.parquet", (), withheld)] if withheld else [])

    def parse(self, record: Any, context: Context) -> Parsed:
        return Row("", "", text_of(record, "text"))

    def attributes_of(self, record: Any, context: Context) -> Mapping[str, Any]:
        return {"date": time_of(record.get("timestamp")), "url": record.get("url"), "domain": "web"}
