"""AMPS, Mathematica part (``amps.tar.gz``): generated exercises with answers, one output per topic and task."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from pairmill.engine.options import Profile
from pairmill.formats.file_slice import FileSlice
from pairmill.formats.row import Row
from pairmill.sources.origin import Web
from pairmill.sources.parsed import Drop, Labelled, Malformed, Parsed, Record
from pairmill.sources.quirks import QUIRKS
from pairmill.sources.source import Context, OutputFormat, Source, Unit, load_readers

AMPS_FILE = "amps.tar.gz"
# The link of github.com/hendrycks/math.
AMPS = Web(f"https://drive.google.com/file/d/1hQsua3TkpEmcJD_UWQx8dmNdEZPyxw23/view#{AMPS_FILE}")
AMPS_CITATION = (
    "Hendrycks, Burns, Kadavath, Arora, Basart, Tang, Song, Steinhardt: Measuring Mathematical Problem Solving With "
    "the MATH Dataset. NeurIPS 2021, arXiv:2103.03874"
)


def amps_archives(files: Sequence[str]) -> tuple[str, ...]:
    """Return the archive as it is published, or else what tar archives there are."""
    return tuple(path for path in files if path == AMPS_FILE) or tuple(
        path for path in files if path.endswith((".tar.gz", ".tar"))
    )


_HEAD = re.compile(r"\A[\s\ufeff]+")


class AmpsMathematica(Source):
    """A record is (topic, task, content) of a member ``…/mathematica/<topic>/<task>/<n>.txt``, in archive order.

    The reference decides by the last parts of a name alone, and reads a name of three parts as well. It joins topic
    and task by a line, which two pairs can share, and finds ``Problem:`` at the very beginning only.
    """

    name = "ampsmathematica"
    origin = AMPS
    licence = "none stated"
    citation = AMPS_CITATION
    format = OutputFormat(fields=("condition", "instruction", "response"))

    def units(self, files: Sequence[str], card: str, profile: Profile, options: Any) -> list[Unit]:
        return [Unit("data_clustered/ampsmathematica/{}.parquet", amps_archives(files))]

    def read(self, piece: FileSlice, profile: Profile) -> Iterator[Record]:
        for name, content in load_readers().tar_members(piece, _is_problem):
            topic, task, _ = name.strip("/").split("/")[-3:]
            yield name, (topic, task, content)

    def parse(self, record: Any, context: Context) -> Parsed:
        if not isinstance(record, tuple) or len(record) != 3:
            return Malformed("not_a_member")
        topic, task, content = record
        if not isinstance(topic, str) or not isinstance(task, str) or not isinstance(content, bytes):
            return Malformed("not_a_member")
        if any("\ud800" <= character <= "\udfff" for character in topic + task):
            return Malformed("name_is_not_utf8")
        try:
            text = content.decode()
        except UnicodeDecodeError:
            return Malformed("invalid_utf8", weight=0)
        text = text if context.quirks.problem_mark_at_start_only else _HEAD.sub("", text, count=1)
        problem, mark, answer = text.removeprefix("Problem:").partition("Answer:")
        if not mark:
            return Malformed("no_answer", weight=0)
        problem, answer = problem.strip(), answer.strip()
        if not problem or not answer:
            return Drop("empty_response" if problem else "empty_instruction")
        # A label of the default profile tells a_b + c from a + b_c: the second of a name gets one of its own.
        label = f"{topic}_{task}" if context.quirks.ambiguous_labels else f"{topic}/{task}"
        return Labelled(label, Row("noisy,cot" if task.endswith("w_steps") else "noisy,direct", problem, answer))

    def file_name(self, label: str, profile: Profile) -> str:
        return label if QUIRKS[profile].ambiguous_labels else super().file_name(label, profile)


def _is_problem(name: str) -> bool:
    parts = name.strip("/").split("/")
    return name.endswith(".txt") and len(parts) >= 3 and (len(parts) == 3 or parts[-4] == "mathematica")
