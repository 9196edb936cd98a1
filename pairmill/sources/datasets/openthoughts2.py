"""OpenThoughts2 (Hub ``open-thoughts/OpenThoughts2-1M``), without code and chat: answers without their reasoning."""

from typing import Any

from pairmill.sources.fields import answer_row, text_of, text_or_null
from pairmill.sources.origin import Hub
from pairmill.sources.parsed import Drop, MalformedRecord, Parsed
from pairmill.sources.source import Context, Source

# nvidia_math is neither: the same questions come through acereason.
_LEFT_OUT = {"dolphin", "evolcodegolf", "glaive", "magicoder", "sharegpt", "codefeedback", "nvidia_math"}


class OpenThoughts2(Source):
    """What a user asked and an assistant answered, if neither speaks of Python and the answer has no code block.

    The reference keeps reasoning whose tag is not closed, and the line feeds that follow the tag.
    """

    name = "openthoughts2"
    origin = Hub("open-thoughts/OpenThoughts2-1M", ("data/train-*",))
    licence = "Apache-2.0"
    citation = (
        "Guha, Marten, Keh, Raoof et al.: OpenThoughts: Data Recipes for Reasoning Models. 2025, arXiv:2506.04178"
    )
    fields = ("source", "conversations")
    output = "data_clustered/openthoughts2/all.parquet"

    def parse(self, record: Any, context: Context) -> Parsed:
        if text_or_null(record, "source") in _LEFT_OUT:
            return Drop("code_or_chat_source")
        question, answer = _turns(record.get("conversations"))
        # Bytes: str.lower and str.find are three times as slow on a long text with a character that is not Latin.
        encoded = answer.encode("utf-8", "surrogatepass")
        if "python" in question.lower() or b"```" in encoded or b"python" in encoded.lower():
            return Drop("about_code")
        return answer_row("synth,cot", question, answer, context.quirks)


def _turns(messages: Any) -> tuple[str, str]:
    """Return what the user and the assistant say in a conversation of two messages."""
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise MalformedRecord("no_conversation")
    if [message.get("from") for message in messages] != ["user", "assistant"]:
        raise MalformedRecord("not_user_then_assistant")
    question, answer = messages
    return text_of(question, "value"), text_of(answer, "value")
