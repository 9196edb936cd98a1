"""AceReason 1.1 SFT (Hub ``nvidia/AceReason-1.1-SFT``), mathematics: the answer that follows a model's reasoning."""

from collections.abc import Sequence
from typing import Any

from pairmill.engine.options import Profile
from pairmill.sources.fields import answer_row, text_or_null, texts_of
from pairmill.sources.files.card import hub_split
from pairmill.sources.origin import HubRows
from pairmill.sources.parsed import Drop, Malformed, Parsed
from pairmill.sources.source import Context, Source, Unit


class AceReason(Source):
    """Rows of mathematics only; the code rows are never looked at.

    The reference keeps reasoning whose tag is not closed, and the line feeds that follow the tag.
    """

    name = "acereason"
    # Published as Arrow files (sft_data.parquet/data-00000-of-00187.arrow, …), which only `datasets` reads.
    origin = HubRows("nvidia/AceReason-1.1-SFT", ("train",))
    licence = "not verified (the publisher's AceReason-Math is CC-BY-4.0)"
    citation = (
        "Liu, Yang, Chen, Lee, Shoeybi, Catanzaro, Ping: AceReason-Nemotron 1.1: Advancing Math and Code Reasoning "
        "through SFT and RL Synergy. 2025, arXiv:2506.13284"
    )
    fields = ("category", "input", "output")

    def units(self, files: Sequence[str], card: str, profile: Profile, options: Any) -> list[Unit]:
        # The card may name the Arrow files of which Parquet was made.
        result = hub_split(files, card, "train") or hub_split(files, "", "train")
        return [Unit("data_clustered/acereason/all.parquet", result)]

    def parse(self, record: Any, context: Context) -> Parsed:
        if isinstance(record, dict) and record.get("category", "math") != "math":
            return Drop("not_math")
        _, output = texts_of(record, "category", "output")
        question = text_or_null(record, "input")
        thoughts = output.count("<think>")
        if thoughts != 1:
            return Malformed("several_thoughts" if thoughts else "no_thought")
        return answer_row("synth,cot", question, output, context.quirks)
