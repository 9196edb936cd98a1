"""The Flan collection (Hub ``Open-Orca/FLAN``): fourteen sets of prompts and answers, one output per set and task."""

import re
from collections.abc import Sequence
from typing import Any

from pairmill.engine.options import Profile
from pairmill.formats.row import Row
from pairmill.sources.fields import texts_of
from pairmill.sources.origin import Hub
from pairmill.sources.parsed import Labelled, Parsed
from pairmill.sources.source import Context, Source, Unit

_NAMES = """
dialog_fsopt_data flan_fsopt_data flan_fsnoopt_data niv2_fsopt_data t0_fsopt_data t0_fsnoopt_data dialog_zsopt_data
flan_zsopt_data flan_zsnoopt_data niv2_zsopt_data t0_zsopt_data t0_zsnoopt_data cot_fsopt_data cot_zsopt_data
"""
_SUBSETS = tuple(_NAMES.split())


class Flan(Source):
    """The task's name is the label of a row; its set says whether the answer shows reasoning.

    The reference writes the text ``None`` for a null, and loses a task whose file name is another's as well.
    """

    name = "flan"
    origin = Hub("Open-Orca/FLAN", tuple(f"{subset}/*.parquet" for subset in _SUBSETS))
    licence = "CC-BY-4.0"
    citation = (
        "Longpre, Hou, Vu, Webson, Chung, Tay, Zhou, Le, Zoph, Wei, Roberts: The Flan Collection: Designing Data and "
        "Methods for Effective Instruction Tuning. ICML 2023, arXiv:2301.13688"
    )
    fields = ("inputs", "targets", "_task_name")

    def units(self, files: Sequence[str], card: str, profile: Profile, options: Any) -> list[Unit]:
        result = []
        for subset in _SUBSETS:
            part = re.compile(rf"(?:.*/)?{subset}/[^/.][^/]*\.parquet$")
            parts = tuple(path for path in files if part.match(path))
            if parts:
                result.append(Unit(f"data_clustered/flan/{subset}__{{}}.parquet", parts, tag=subset))
        return result

    def parse(self, record: Any, context: Context) -> Parsed:
        null = "None" if context.quirks.null_as_text else None
        inputs, targets, task = texts_of(record, *self.fields, null=null)
        return Labelled(task, Row("cot" if context.tag.startswith("cot_") else "direct", inputs, targets))
