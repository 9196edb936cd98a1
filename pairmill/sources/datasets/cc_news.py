"""CC-News (Hub ``vblagoje/cc_news``, config ``plain_text``): English news articles of 2017 to 2019, titles first."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pairmill.formats.row import Row
from pairmill.sources.fields import text_of, time_of
from pairmill.sources.origin import Hub
from pairmill.sources.parsed import Parsed
from pairmill.sources.source import Context, Source


class CcNews(Source):
    """An article is a document: title, an empty line, text; without a title the text alone."""

    name = "cc_news"
    origin = Hub("vblagoje/cc_news", ("**/*.parquet",))
    licence = "unknown"
    citation = "Hamborg, Meuschke, Breitinger, Gipp: news-please: A Generic News Crawler and Extractor. ISI 2017"
    config = "plain_text"
    fields = ("text",)
    optional = ("title", "date", "url", "domain")
    output = "data_clustered/cc_news/all.parquet"
    documents = True
    by_name_only = True
    attributes: ClassVar[Mapping[str, str]] = {"date": "date", "url": "text", "domain_name": "text", "domain": "text"}

    def parse(self, record: Any, context: Context) -> Parsed:
        text = text_of(record, "text").strip()
        title = (text_of(record, "title") if record.get("title") is not None else "").strip()
        return Row("", "", f"{title}\n\n{text}" if title and text else text)

    def attributes_of(self, record: Any, context: Context) -> Mapping[str, Any]:
        return {
            "date": time_of(record.get("date")),
            "url": record.get("url"),
            "domain_name": record.get("domain"),
            "domain": "news",
        }
