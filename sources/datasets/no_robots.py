"""No Robots (Hub ``HuggingFaceH4/no_robots``): requests and answers written by people, first turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pairmill.engine.stage import Profile
from pairmill.formats.rows import Row
from sources.fields import list_of, text_of, text_or_null
from sources.origin import Hub
from sources.source import FURTHER_TURNS, Context, Drop, Malformed, Note, Parsed, Source, Unit
from sources.splits import TrainOnly, files_by_split


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

    def units(self, files: Sequence[str], card: str, profile: Profile, options: Any) -> list[Unit]:
        taken, withheld = files_by_split(files, card, ("train", "test"), options, profile)
        return [Unit("data/no_robots.jsonl", taken, withheld)]

    def parse(self, record: Any, context: Context) -> Parsed:
        messages = list_of(record, "messages")
        if isinstance(messages, Malformed):
            return messages
        if len(messages) < 2:
            return Drop("fewer_than_two_messages")
        prefix, turn, rest = "", messages[:2], messages[2:]
        if text_or_null(messages[0], "role") == "system":
            system = text_of(messages[0], "content")
            if isinstance(system, Malformed):
                return system
            prefix, turn, rest = system + "\n\n", messages[1:3], messages[3:]
        roles = []
        for message in turn:
            role = text_or_null(message, "role")
            if isinstance(role, Malformed):
                return role
            roles.append(role)
        if roles != ["user", "assistant"]:
            return Drop("not_user_then_assistant")
        request, answer = text_of(turn[0], "content"), text_or_null(turn[1], "content")
        if isinstance(request, Malformed):
            return request
        if isinstance(answer, Malformed):
            return answer
        row = Row("cot", prefix + request, answer)
        further = sum(isinstance(message, dict) and message.get("role") == "assistant" for message in rest)
        return (row, Note(FURTHER_TURNS, further)) if further else row
