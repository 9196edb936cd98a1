"""Documents of any length in any context: their pieces, joined, are their tokens, and no cut is within a character."""

import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from pairmill.formats.characters import continuing
from pairmill.formats.eligible_rows import DatasetRows, rows_of
from pairmill.formats.split import Cutter
from pairmill.formats.tokens import Dataset
from pairmill.loader import Loader, RowPlan
from pairmill.rules.rule import Rule
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.sample.run import run
from tests.property.test_loader import GATE
from tests.support.data import split_characters
from tests.support.data.split_characters import BOQ, EOQ, Vocabulary

TEXTS = st.text(st.sampled_from("ab é日語🙂ü\u0301Ж"), max_size=60)
CASES = st.fixed_dictionaries(
    {
        "documents": st.lists(st.tuples(TEXTS, TEXTS.map(lambda text: text[:3])), min_size=1, max_size=6),
        "widths": st.lists(st.integers(1, 6), min_size=1, max_size=5),
        "context": st.integers(1, 40),
        "least": st.integers(0, 9),
    }
)


class Case(NamedTuple):
    """A tokenized folder in memory."""

    vocabulary: Vocabulary
    rows: list[tuple[list[int], list[int]]]
    context: int
    least: int

    @classmethod
    def of(cls, documents: list[tuple[str, str]], widths: list[int], context: int, least: int) -> "Case":
        whole = "".join(text + question for text, question in documents).encode()
        vocabulary = Vocabulary([whole[at : at + width] for width in widths for at in range(0, len(whole), 2)])
        rows = []
        for text, question in documents:
            asked = [vocabulary.added[BOQ], *vocabulary.encode(question, widths)[:-1], vocabulary.added[EOQ]]
            rows.append((asked, vocabulary.encode(text, widths)))
        return cls(vocabulary, rows, context, least)

    def expected(self) -> tuple[list[tuple[list[int], list[int]]], Counter[str]]:
        """Pieces and reasons."""
        made, dropped = [], Counter[str]()
        for asked, answer in self.rows:
            texts = [self.vocabulary.text([one]) for one in answer]
            room = self.context - len(asked)
            found = (
                "response_too_short"
                if len(answer) < self.least
                else "over_context"
                if room < 1
                else split_characters.naive(texts, room, self.least)
            )
            if isinstance(found, str):
                dropped[found] += 1
                continue
            at = 0
            for length in found:
                made.append((asked, answer[at : at + length]))
                at += length
        return made, dropped

    def write(self, folder: Path) -> Path:
        return split_characters.write(folder, self.vocabulary, {"task.jsonl": self.rows})


def rows(case: Case, folder: Path) -> DatasetRows:
    dataset = Dataset("task.jsonl", str(case.write(folder) / "task.jsonl"))
    config = SampleConfig(tokenized_path="x", context_size=case.context, min_resp_length=case.least)
    with Cutter.open(dataset.array(), continuing(case.vocabulary.json(), "tokenizer.json")) as cutter:
        return rows_of("task.jsonl", Rule(long_context="split"), dataset.index(2), config, cutter)


@GATE
@given(CASES)
def test_the_pieces_of_a_document_joined_are_its_tokens(given_case: dict[str, object]) -> None:
    case = Case.of(**given_case)  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as name:
        made = rows(case, Path(name))
    ids = [one for row in case.rows for part in row for one in part]
    columns = [values.tolist() for values in made.columns.values()]
    pieces = [(ids[a : a + b], ids[c : c + d]) for a, b, c, d in zip(*columns, strict=True)]
    expected, dropped = case.expected()
    assert pieces == expected
    assert made.ledger.dropped == dropped
    # What the definition above implies, said of the pieces themselves.
    assert all(len(asked) + len(answer) <= case.context for asked, answer in pieces)
    joined: list[list[int]] = [[]]
    for _, answer in pieces:
        joined[-1] += answer
        if answer[-1] == case.vocabulary.added[split_characters.EOA]:
            assert len(answer) >= case.least
            joined.append([])
        else:
            case.vocabulary.text(joined[-1]).decode()  # of whole characters
    assert joined.pop() == []
    assert len(joined) == len(case.rows) - sum(dropped.values())
    documents = iter(answer for _, answer in case.rows)
    assert all(one in documents for one in joined)  # in their order


@settings(GATE, max_examples=25)
@given(CASES)
def test_a_loader_gives_every_piece(given_case: dict[str, object]) -> None:
    case = Case.of(**given_case)  # type: ignore[arg-type]
    expected, _ = case.expected()
    if not expected:
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "rules.yaml").write_text(yaml.safe_dump([{"prefix": "", "long_context": "split"}]))
        options = {"prefix_config_path": str(folder / "rules.yaml"), "epochs": 1, "context_size": case.context}
        tokenized, sampled = case.write(folder / "tokenized"), str(folder / "sampled")
        run(
            SampleConfig(
                tokenized_path=str(tokenized),
                output_path=sampled,
                min_resp_length=case.least,
                **options,  # type: ignore[arg-type]
            )
        )
        found = Counter[tuple[tuple[int, ...], tuple[int, ...]]]()
        with Loader(RowPlan(sampled, tail="keep", target_only=False), batch_tokens=64, threads=0) as loader:
            for batch in loader:
                ends = batch["cu_seqlens"][: batch.scalars["numseqs"] + 1].tolist()
                for number, (start, end) in enumerate(pairwise(ends)):
                    tokens = (*batch["inputs"][start:end].tolist(), int(batch["labels"][end - 1]))
                    asked = int(batch["prefix_lens"][number])
                    found[tokens[:asked], tokens[asked:]] += 1
    assert found == Counter((tuple(asked), tuple(answer)) for asked, answer in expected)
