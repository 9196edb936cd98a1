"""DeepMind mathematics (``mathematics_dataset-v1.0/<subset>/*.txt``): a question line, an answer line, and so on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from components.clean.names import safe_name
from components.clean.source import Output, Parsed, Source
from pairmill.rows import Row
from pairmill.stage import Profile

_SUBSETS = ("train-easy", "train-medium", "train-hard")  # interpolate and extrapolate are the benchmark's tests


class DmMath(Source):
    """One output per module and difficulty. A record is a (question, answer) pair of stripped lines."""

    name = "dmmath"

    def outputs(self, files: Sequence[str], card: str) -> list[Output]:
        found = []
        for subset in _SUBSETS:
            module = re.compile(rf"(?:.*/)?{subset}/([^/.][^/]*)\.txt$")
            for path in files:
                match = module.match(path)
                if match:
                    name = safe_name(f"{subset}__{match.group(1)}")
                    found.append(Output(f"data_clustered/dmmath/{name}.parquet", (path,)))
        return found

    def parse(self, record: Any, profile: Profile) -> Parsed:
        question, answer = record
        return Row("direct", question, answer)
