"""NuminaMath 1.5 (Hub ``AI-MO/NuminaMath-1.5``): competition problems that were judged valid, solved in full."""

from typing import Any

from pairmill.formats.row import Row
from pairmill.sources.fields import texts_or_nulls
from pairmill.sources.origin import Hub
from pairmill.sources.parsed import Drop, Malformed, Parsed
from pairmill.sources.source import Context, Source


class NuminaMath(Source):
    """Per problem the solution, and the answer if it is one: for a proof it says ``proof``, in several spellings."""

    name = "numinamath"
    origin = Hub("AI-MO/NuminaMath-1.5", ("data/train-*",))
    licence = "Apache-2.0"
    citation = (
        "Li, Beeching, Tunstall, Lipkin, Soletskyi, Huang, Rasul, Yu, Jiang, Shen, Qin, Dong, Zhou, Fleureau, Lample, "
        "Polu: NuminaMath. 2024, Project Numina technical report, Hugging Face repository"
    )
    fields = ("problem", "solution", "answer", "question_type", "problem_is_valid", "solution_is_valid", "synthetic")
    output = "data/numinamath.jsonl"

    def parse(self, record: Any, context: Context) -> Parsed:
        problem, solution, answer, question_type, problem_is_valid, solution_is_valid = texts_or_nulls(
            record, *self.fields[:-1]
        )
        if "synthetic" not in record:
            return Malformed("missing_synthetic")
        if not isinstance(record["synthetic"], bool | None):
            return Malformed("synthetic_is_no_boolean")
        if record["synthetic"]:
            return Drop("synthetic")
        if problem_is_valid != "Yes":
            return Drop("problem_not_valid")
        if solution_is_valid != "Yes":
            return Drop("solution_not_valid")
        if solution is None:
            return Drop("no_solution")
        if answer is None:
            return Drop("no_answer")
        if problem is None:
            return Malformed("null_problem")
        if "http" in problem or "http" in solution:
            return Drop("holds_a_link")
        if "Translate the text above into English" in solution:
            return Drop("holds_a_translation_prompt")
        problem, solution, short = problem.strip(), solution.strip(), answer.strip()
        if not problem or not solution:
            return Drop("empty_response" if problem else "empty_instruction")
        worked = Row("noisy,cot", problem, solution)
        named = answer if context.quirks.proof_spelled_exactly else short.casefold()
        if "proof" in (named, question_type):
            return [worked, Drop("answer_is_a_proof")]
        if not short:
            return [worked, Drop("empty_answer")]
        return [worked, Row("noisy,direct", problem, short)]
