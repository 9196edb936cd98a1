"""DeepMind mathematics (``mathematics_dataset-v1.0/<subset>/*.txt``): a question line, an answer line, and so on."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from pairmill.engine.options import Profile
from pairmill.formats.file_slice import FileSlice
from pairmill.formats.row import Row
from pairmill.sources.names import safe_name
from pairmill.sources.origin import Web
from pairmill.sources.parsed import Malformed, Parsed, Record
from pairmill.sources.quirks import QUIRKS
from pairmill.sources.source import Context, Source, Unit, load_readers

_SUBSETS = ("train-easy", "train-medium", "train-hard")  # interpolate and extrapolate are the benchmark's tests


class DmMath(Source):
    """One output per module and difficulty. A record is a (question, answer) pair of stripped lines."""

    name = "dmmath"
    origin = Web(
        "https://storage.googleapis.com/mathematics-dataset/mathematics_dataset-v1.0.tar.gz",
        unpack=tuple(f"**/{subset}/*.txt" for subset in _SUBSETS),
    )
    licence = "Apache-2.0"
    citation = (
        "Saxton, Grefenstette, Hill, Kohli: Analysing Mathematical Reasoning Abilities of Neural Models. ICLR 2019, "
        "arXiv:1904.01557"
    )
    lines_per_record = 2

    def units(self, files: Sequence[str], card: str, profile: Profile, options: Any) -> list[Unit]:
        result = []
        for subset in _SUBSETS:
            module = re.compile(rf"(?:.*/)?{subset}/([^/.][^/]*)\.txt$")
            for path in files:
                match = module.match(path)
                if match:
                    name = safe_name(f"{subset}__{match.group(1)}")
                    result.append(Unit(f"data_clustered/dmmath/{name}.parquet", (path,)))
        return result

    def read(self, piece: FileSlice, profile: Profile) -> Iterator[Record]:
        pairs: Iterator[Record] = load_readers().line_pairs(piece, pair_empty_lines=QUIRKS[profile].pair_empty_lines)
        return pairs

    def parse(self, record: Any, context: Context) -> Parsed:
        if isinstance(record, tuple) and len(record) == 2:
            question, answer = record
            if isinstance(question, str) and isinstance(answer, str):
                return Row("direct", question, answer)
        return Malformed("not_a_pair_of_lines")
