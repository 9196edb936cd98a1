"""GSM8K, training split (Hub ``openai/gsm8k``, config ``main``): grade-school word problems with a final number."""

from typing import Any

from pairmill.formats.row import Row
from pairmill.sources.fields import texts_of
from pairmill.sources.origin import Hub
from pairmill.sources.parsed import Malformed, Parsed
from pairmill.sources.source import Context, Source

_MARK = "#### "


class Gsm8kTrain(Source):
    """The question and the number after ``#### ``; the worked solution is not used."""

    name = "gsm8k_train"
    origin = Hub("openai/gsm8k", ("main/train-*",))
    licence = "MIT"
    citation = (
        "Cobbe, Kosaraju, Bavarian, Chen, Jun, Kaiser, Plappert, Tworek, Hilton, Nakano, Hesse, Schulman: Training "
        "Verifiers to Solve Math Word Problems. 2021, arXiv:2110.14168"
    )
    fields = ("question", "answer")
    config = "main"
    output = "data/gsm8k_train.jsonl"

    def parse(self, record: Any, context: Context) -> Parsed:
        question, answer = texts_of(record, "question", "answer")
        parts = answer.split(_MARK)
        if len(parts) != 2:
            return Malformed("no_final_answer" if len(parts) == 1 else "several_final_answers")
        return Row("direct", question.strip(), parts[1].strip())
