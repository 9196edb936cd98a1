"""AceReason 1.1 SFT (Hub ``nvidia/AceReason-1.1-SFT``), mathematics: the answer that follows a model's reasoning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pairmill.engine.stage import Profile
from pairmill.formats.rows import Row
from sources.card import hub_split
from sources.fields import text_or_null, texts_of, without_thoughts
from sources.origin import HubRows
from sources.source import Context, Drop, Malformed, Parsed, Source, Unit


class AceReason(Source):
    """Rows of mathematics only; the code rows are never looked at.

    The reference keeps the reasoning where its tag is not closed, and the line feeds that follow the tag.
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
        # A card may speak of the Arrow files, where Parquet was made of them.
        found = hub_split(files, card, "train") or hub_split(files, "", "train")
        return [Unit("data_clustered/acereason/all.parquet", found)]

    def parse(self, record: Any, context: Context) -> Parsed:
        if isinstance(record, Mapping) and record.get("category", "math") != "math":
            return Drop("not_math")
        texts, question = texts_of(record, "category", "output"), text_or_null(record, "input")
        if isinstance(texts, Malformed):
            return texts
        if isinstance(question, Malformed):
            return question
        _, output = texts
        thoughts = output.count("<think>")
        if thoughts != 1:
            return Malformed("several_thoughts" if thoughts else "no_thought")
        response = without_thoughts(output)
        if not context.data_io:
            if "<think>" in response:
                return Drop("unclosed_thought")
            response = response.strip()
        return Row("synth,cot", question, response)
