"""BookCorpus (Hub ``bookcorpus/bookcorpus``, its conversion to Parquet): sentences of books, joined to blocks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pairmill.engine.options import Profile, option
from pairmill.formats.row import Row
from pairmill.sources.fields import text_of
from pairmill.sources.files.card import hub_split
from pairmill.sources.files.splits import SourceOptions
from pairmill.sources.names import safe_name
from pairmill.sources.origin import Hub
from pairmill.sources.parsed import Malformed, MalformedRecord, Note, Parsed, Record
from pairmill.sources.source import Context, Source, Unit


@dataclass(kw_only=True)
class Blocks(SourceOptions):
    """How long blocks of sentences are."""

    block_words: int = option(512, help="sentences are joined until a block has this many words", at_least=1)


class BookCorpus(Source):
    """A block of consecutive sentences is a document, because the published records do not tell where a book ends.

    A record of the ledger is a block. The sentences of all blocks are counted as ``sentences_joined``. A block ends
    with the sentence that fills it, with the file, and between the slices of a large file.
    """

    name = "bookcorpus"
    # The branch main has a loading script, which nobody runs.
    origin = Hub("bookcorpus/bookcorpus", ("plain_text/**/*.parquet",), "refs/convert/parquet")
    licence = "unknown"
    citation = (
        "Zhu, Kiros, Zemel, Salakhutdinov, Urtasun, Torralba, Fidler: Aligning Books and Movies: Towards Story-Like "
        "Visual Explanations by Watching Movies and Reading Books. ICCV 2015, arXiv:1506.06724"
    )
    options = Blocks
    config = "plain_text"
    fields = ("text",)
    documents = True
    by_name_only = True
    attributes: ClassVar[Mapping[str, str]] = {"domain": "text"}

    def units(self, files: Sequence[str], card: str, profile: Profile, options: Any) -> list[Unit]:
        words = str(options.block_words)
        return [
            Unit(f"data_clustered/bookcorpus/{safe_name(path.removesuffix('.parquet'))}.parquet", (path,), tag=words)
            for path in hub_split(files, card, "train", self.config)
        ]

    def joined(self, records: Iterator[Record], context: Context) -> Iterator[Record]:
        """Blocks as ``{"text", "sentences", "empty"}``, at the place of their first sentence.

        Empty sentences belong to the block before them, so that each is counted.
        """
        wanted = int(context.tag)
        place: int | str | None = None
        block: list[str] = []
        words = empty = 0
        for number, record in records:
            try:
                sentence = _sentence(record)
            except MalformedRecord as error:
                yield number, error.why
                continue
            if sentence and words >= wanted:
                yield place or 0, _block(block, empty)
                place, block, words, empty = None, [], 0, 0
            place = number if place is None else place
            block += [sentence] if sentence else []
            words += len(sentence.split())
            empty += not sentence
        if place is not None:
            yield place, _block(block, empty)

    def parse(self, record: Any, context: Context) -> Parsed:
        row = Row("", "", text_of(record, "text"))
        counts = {"sentences_joined": record.get("sentences"), "empty_sentences": record.get("empty")}
        return [row, *(Note(what, times) for what, times in counts.items() if times)]

    def attributes_of(self, record: Any, context: Context) -> Mapping[str, Any]:
        return {"domain": "books"}


def _sentence(record: Any) -> str:
    if isinstance(record, Malformed):
        raise MalformedRecord(record.reason)
    return text_of(record, "text").strip()


def _block(sentences: list[str], empty: int) -> dict[str, Any]:
    return {"text": " ".join(sentences), "sentences": len(sentences), "empty": empty}
