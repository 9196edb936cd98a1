"""Which rows repeat items of benchmarks: the rules of the scores, and what hostile input costs."""

import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pairmill._native import LeakIndex, LeakIndexBuilder
from pairmill.errors import InputError
from pairmill.leaks.scorer import LeakScorer
from tests.support.data.leaks import Hit, Item, batch, data_of, hits_of

QUESTION = (
    "a slow barge carries nine crates of pears along the canal while two mules pull it and the keeper of the lock "
    "counts every crate that passes before he opens the gate for the next boat"
)
WORDS = QUESTION.split()
ANSWER = "the keeper counts ninety pears before noon"
FILLER = [f"word{number}" for number in range(2_000)]


def score(items: list[Item], instruction: str, response: str = "none") -> list[Hit]:
    return hits_of(LeakIndex(data_of(items)), [(instruction, response)])


def one(items: list[Item], instruction: str, response: str = "none") -> Hit:
    (hit,) = score(items, instruction, response)
    return hit


def test_a_question_without_its_answer_is_a_question() -> None:
    hit = one([Item("1", QUESTION, [ANSWER])], f"Please answer: {QUESTION}?", "I do not know.")
    assert hit == Hit(0, "bench", "1", "question", "instruction", 1.0, 0.0, (-1, -1))


def test_a_question_with_its_answer_is_both() -> None:
    hit = one([Item("1", QUESTION, ["something else altogether here", ANSWER])], QUESTION, f"Well, {ANSWER}.")
    assert (hit.verdict, hit.answer) == ("question_answer", 1.0)


def test_an_index_of_one_item_finds_it() -> None:
    """A weight of ln(M/df) would be 0."""
    assert one([Item("1", QUESTION)], QUESTION).question == 1.0


def test_a_question_in_the_response_is_answered_after_it() -> None:
    items = [Item("1", QUESTION, [ANSWER])]
    filler = " ".join(FILLER[:600])
    after = one(items, "Write.", f"{filler} {QUESTION} {ANSWER}")
    assert (after.verdict, after.field, after.answer) == ("question_answer", "response", 1.0)
    start, end = after.window
    assert start <= 600
    assert end >= 600 + len(WORDS)
    assert one(items, "Write.", f"{ANSWER} {filler} {QUESTION}").verdict == "question"


def test_the_field_with_the_higher_score_is_named_and_the_instruction_wins_a_tie() -> None:
    items = [Item("1", QUESTION)]
    edited = QUESTION.replace("mules", "oxen")
    assert one(items, edited, QUESTION).field == "response"
    assert one(items, QUESTION, edited).field == "instruction"
    assert one(items, QUESTION, QUESTION).field == "instruction"


def test_a_question_of_twelve_tokens_must_be_there_in_full() -> None:
    short = " ".join(WORDS[:12])
    assert one([Item("1", short)], f"So: {short}.").question == 1.0
    assert score([Item("1", short)], short.replace("barge", "boat")) == []


def test_a_long_question_may_have_a_few_other_words() -> None:
    edited = QUESTION.replace("mules", "oxen")
    hit = one([Item("1", QUESTION)], edited)
    assert 0.75 <= hit.question < 1.0


def test_common_parts_of_a_question_are_no_leak() -> None:
    head = "Read the passage below with care and choose the option that completes the statement best of all"
    items = [Item(str(number), f"{head}: {' '.join(FILLER[9 * number : 9 * number + 9])}") for number in range(100)]
    assert score(items, f"{head}: {' '.join(FILLER[1500:1509])}") == []
    assert one(items, items[7].question).item == "7"


def test_other_numbers_make_a_variant() -> None:
    items = [Item("1", f"{QUESTION} 12 and 1,500 crates", ["1"])]
    assert one(items, f"{QUESTION} 12 and 1500 crates").verdict == "question"
    assert one(items, f"{QUESTION} 13 and 1500 crates").verdict == "variant"
    assert one([Item("1", f"{QUESTION} 12 and 12 crates")], f"{QUESTION} 12 and crates").verdict == "variant"


def test_a_short_question_must_be_the_whole_instruction() -> None:
    items = [Item("1", "What is 2+2?", ["4"]), Item("2", "Why not?", ["because of the weather"])]
    assert one(items, "WHY NOT").verdict == "short_question"
    assert one(items, "why not", "It is because of the weather.").verdict == "question_answer"
    assert score(items, "Why not go?") == []
    assert score(items, "Ask.", "Why not?") == []


def test_a_question_without_a_token_is_never_found() -> None:
    assert score([Item("1", "?!"), Item("2", "")], "?!") == []
    assert score([Item("1", "?!")], "") == []


@pytest.mark.parametrize(
    ("response", "found"),
    [("B", 1.0), ("B because it is so", 1.0), ("The answer is B", 1.0), ("It is B, I think", 0.0), ("", 0.0)],
)
def test_a_letter_is_the_first_or_last_word_of_the_response(response: str, found: float) -> None:
    assert one([Item("1", QUESTION, ["B"])], QUESTION, response).answer == found


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["osmium", "wire", *FILLER[:100]], 1.0),
        ([*FILLER[:100], "osmium", "wire"], 1.0),
        ([*FILLER[:50], "osmium", "wire", *FILLER[50:100]], 0.0),
        # The first ten and the last twenty do not join.
        ([*FILLER[:9], "osmium", *FILLER[9:50], "wire", *FILLER[50:69]], 0.0),
        ([*FILLER[:20], "osmium", "wire", *FILLER[20:40]], 1.0),
    ],
)
def test_a_brief_answer_counts_at_the_ends_of_a_long_response(words: list[str], found: float) -> None:
    assert one([Item("1", QUESTION, ["osmium wire"])], QUESTION, " ".join(words)).answer == found


def test_a_long_answer_counts_by_its_share() -> None:
    hit = one([Item("1", QUESTION, [ANSWER])], QUESTION, "the keeper counts ninety pears after noon")
    assert hit.answer == pytest.approx(3 / 5)
    assert hit.verdict == "question"


def test_equal_questions_of_several_benchmarks_are_all_found() -> None:
    items = [Item("1", QUESTION, ["B"], "one"), Item("2", QUESTION.upper(), ["C"], "two")]
    found = score(items, QUESTION, "C")
    assert [(hit.benchmark, hit.item, hit.verdict) for hit in found] == [
        ("two", "2", "question_answer"),
        ("one", "1", "question"),
    ]


def test_a_long_text_is_looked_at_in_windows() -> None:
    """Else it would collect the grams of a question from all over the text."""
    items = [Item("1", QUESTION)]
    # Pieces of five words, which have three of the question's grams each, far apart.
    pieces = [" ".join(WORDS[at : at + 5]) for at in range(0, len(WORDS) - 4, 3)]
    apart = [f"{piece} {' '.join(FILLER[100 * number : 100 * number + 100])}" for number, piece in enumerate(pieces)]
    assert len(pieces) > 8
    assert score(items, " ".join(apart)) == []
    assert one(items, " ".join(pieces)).question > 0.9


@pytest.mark.parametrize(
    "text",
    [
        " ".join(WORDS[:5]) + " ",
        QUESTION + " ",
        " ".join(WORDS[5:9]) + " ",
    ],
    ids=["a seed", "a question", "no seed"],
)
def test_a_text_that_repeats_itself_takes_time_in_proportion(text: str) -> None:
    made = LeakIndex(data_of([Item("1", QUESTION), *(Item(str(at), f"{QUESTION} {at}") for at in range(2, 200))]))
    repeated = pa.array([text * (10_000_000 // len(text))])
    began = time.process_time()
    made.score(pa.array(["Read."]), repeated)
    assert time.process_time() - began < 20


def test_candidates_of_a_field_are_bounded_and_counted() -> None:
    """Questions of the same few words have no rare grams, so every field of such words is a candidate of all."""
    rng = np.random.default_rng(1)
    questions = [" ".join(rng.choice(WORDS[:3], 40)) for _ in range(3_000)]
    made = LeakIndex(data_of([Item(str(at), question) for at, question in enumerate(questions)]))
    began = time.process_time()
    found = made.score(pa.array([" ".join(rng.choice(WORDS[:3], 200_000))]), pa.array([""]))
    assert time.process_time() - began < 20
    assert found[-1] > 0


def test_damaged_bytes_are_refused() -> None:
    data = data_of([Item("1", QUESTION, [ANSWER]), Item("2", "Why?", ["B"])])
    with pytest.raises(ValueError, match="not an index of benchmark items"):
        LeakIndex(np.zeros(100, np.uint8))
    with pytest.raises(ValueError, match="not an index of benchmark items"):
        LeakIndex(np.zeros(0, np.uint8))
    with pytest.raises(ValueError, match="its length differs"):
        LeakIndex(data[:-8])
    other = data.copy()
    other[8] = 9
    with pytest.raises(ValueError, match="format 9; expected format 1"):
        LeakIndex(other)
    for place in range(16, len(data), 7):
        other = data.copy()
        other[place] ^= 0x55
        with pytest.raises(ValueError, match="the index is damaged"):
            LeakIndex(other)


def test_an_index_that_is_too_large_says_how_large() -> None:
    builder = LeakIndexBuilder(10_000)
    names = pa.array([str(number) for number in range(1_000)])
    questions = pa.array([f"{QUESTION} {number}" for number in range(1_000)])
    with pytest.raises(
        OverflowError, match=r"the index of the first \d+ items takes \d+ bytes; expected at most 10000"
    ):
        builder.add("bench", names, questions, pa.array([], pa.string()), np.zeros(1_000, np.int64))


def test_columns_of_other_lengths_are_refused() -> None:
    builder, none = LeakIndexBuilder(), pa.array([], pa.string())
    with pytest.raises(ValueError, match="got 1 names, 1 questions, 1 counts and 0 answers"):
        builder.add("bench", pa.array(["1"]), pa.array([QUESTION]), none, np.array([1]))
    assert len(builder) == 0
    made = LeakIndex(data_of([Item("1", QUESTION)]))
    with pytest.raises(ValueError, match="got 1 instructions and 0 responses"):
        made.score(pa.array([QUESTION]), none)
    with pytest.raises(IndexError, match="got item 1"):
        made.item(1)


def test_a_damaged_file_says_what_to_do(tmp_path: Path) -> None:
    path = str(tmp_path / "leaks.bin")
    data = data_of([Item("1", QUESTION)])
    data[-1] ^= 1
    data.tofile(path)
    with (
        pytest.raises(InputError, match=r"the index of benchmarks is damaged.*verify=true"),
        LeakScorer(path, "").opened(),
    ):
        pass


def test_a_finding_names_item_scores_field_and_window(tmp_path: Path) -> None:
    path = str(tmp_path / "index.bin")
    data_of([Item("q7", QUESTION, [ANSWER])]).tofile(path)
    scorer = LeakScorer(path, "key")
    with scorer.opened() as run:
        scored = run(
            batch(("Hello.", "Hi."), ("Write.", " ".join([*FILLER[:500], QUESTION, ANSWER])), (QUESTION, "No."))
        )
        nothing = run(batch(("Hello.", "Hi.")))
    assert scored.findings is not None
    first, second = scored.findings.to_pylist()
    assert (first["ordinal"], first["rule"], first["benchmark"], first["item"]) == (1, "question_answer", "bench", "q7")
    assert (first["score_i"], first["score_r"], first["action"]) == (1.0, 1.0, "report")
    assert first["detail"].startswith("response, tokens ")
    assert (second["ordinal"], second["rule"], second["detail"]) == (2, "question", "instruction")
    assert scored.counts == {"hits bench": 2}
    assert (nothing.findings, nothing.counts, scorer.identity()) == (None, {}, ["key"])
