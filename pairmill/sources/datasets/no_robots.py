"""No Robots (Hub ``HuggingFaceH4/no_robots``): requests and answers written by people, first turns."""

from typing import Any

from pairmill.formats.row import Row
from pairmill.sources.fields import list_of, text_of, text_or_null
from pairmill.sources.files.splits import TrainOnly
from pairmill.sources.origin import Hub
from pairmill.sources.parsed import FURTHER_TURNS, Drop, Note, Parsed
from pairmill.sources.source import Context, Source


class NoRobots(Source):
    """The first request, below the system's text if there is one, and its answer; later turns are counted and not used.

    ``cot`` stands for an answer in full prose, here as in the reference: whether a person's answer shows reasoning
    cannot be told from its record, so none of them is called ``direct``.
    """

    name = "no_robots"
    origin = Hub("HuggingFaceH4/no_robots", ("data/train-*", "data/test-*"))
    licence = "CC-BY-NC-4.0"
    citation = "Rajani, Tunstall, Beeching, Lambert, Rush, Wolf: No Robots. 2023, Hugging Face data set"
    options = TrainOnly
    fields = ("messages",)
    splits = ("train", "test")
    output = "data/no_robots.jsonl"

    def parse(self, record: Any, context: Context) -> Parsed:
        messages = list_of(record, "messages")
        if len(messages) < 2:
            return Drop("fewer_than_two_messages")
        prefix, turn, rest = "", messages[:2], messages[2:]
        if text_or_null(messages[0], "role") == "system":
            prefix, turn, rest = text_of(messages[0], "content") + "\n\n", messages[1:3], messages[3:]
        if [text_or_null(message, "role") for message in turn] != ["user", "assistant"]:
            return Drop("not_user_then_assistant")
        row = Row("cot", prefix + text_of(turn[0], "content"), text_or_null(turn[1], "content"))
        further = sum(isinstance(message, dict) and message.get("role") == "assistant" for message in rest)
        return (row, Note(FURTHER_TURNS, further)) if further else row
