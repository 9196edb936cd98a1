"""OpenThoughts2 (Hub ``open-thoughts/OpenThoughts2-1M``), without code and chat: answers without their reasoning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pairmill.engine.stage import Profile
from pairmill.formats.rows import Row
from sources.card import hub_split
from sources.fields import text_or_null, texts_of, without_thoughts
from sources.origin import Hub
from sources.source import Context, Drop, Malformed, Parsed, Source, Unit

# nvidia_math is neither: the same questions come through acereason.
_LEFT_OUT = {"dolphin", "evolcodegolf", "glaive", "magicoder", "sharegpt", "codefeedback", "nvidia_math"}


class OpenThoughts2(Source):
    """What a user asked and an assistant answered, if neither speaks of Python and the answer has no code block.

    The reference keeps the reasoning where its tag is not closed, and the line feeds that follow the tag.
    """

    name = "openthoughts2"
    origin = Hub("open-thoughts/OpenThoughts2-1M", ("data/train-*",))
    licence = "Apache-2.0"
    citation = (
        "Guha, Marten, Keh, Raoof et al.: OpenThoughts: Data Recipes for Reasoning Models. 2025, arXiv:2506.04178"
    )
    fields = ("source", "conversations")

    def units(self, files: Sequence[str], card: str, profile: Profile, options: Any) -> list[Unit]:
        return [Unit("data_clustered/openthoughts2/all.parquet", hub_split(files, card, "train"))]

    def parse(self, record: Any, context: Context) -> Parsed:
        origin = text_or_null(record, "source")
        if isinstance(origin, Malformed):
            return origin
        if origin in _LEFT_OUT:
            return Drop("code_or_chat_source")
        turns = _turns(record.get("conversations"))
        if isinstance(turns, Malformed):
            return turns
        question, answer = turns
        # Bytes: str.lower and str.find are three times as slow on a long text with a character that is not Latin.
        said = answer.encode("utf-8", "surrogatepass")
        if "python" in question.lower() or b"```" in said or b"python" in said.lower():
            return Drop("about_code")
        response = without_thoughts(answer)
        if not context.data_io:
            if "<think>" in response:
                return Drop("unclosed_thought")
            response = response.strip()
        return Row("synth,cot", question, response)


def _turns(messages: Any) -> tuple[str, str] | Malformed:
    """What the user and the assistant say in a conversation of those two messages."""
    if not isinstance(messages, list) or not all(isinstance(message, Mapping) for message in messages):
        return Malformed("no_conversation")
    if [message.get("from") for message in messages] != ["user", "assistant"]:
        return Malformed("not_user_then_assistant")
    question, answer = (texts_of(message, "value") for message in messages)
    if isinstance(question, Malformed):
        return question
    return answer if isinstance(answer, Malformed) else (question[0], answer[0])
