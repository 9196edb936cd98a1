"""Whatever the texts are: a repeated question is found, order does not matter, and nothing panics."""

import random

import numpy as np
import pyarrow as pa

from pairmill._native import LeakIndex
from tests.support.data.leaks import Item, data_of, hits_of
from tests.support.tokenizers import strings

ROUNDS = 60


def texts(draw: random.Random, many: int) -> list[str]:
    return [strings.document(draw) for _ in range(many)]


def test_a_row_that_contains_a_question_is_found() -> None:
    draw = random.Random(f"contains {strings.SEED}")
    looked = 0
    for _ in range(ROUNDS):
        questions = [f"{text} tell me in a few words why {number}" for number, text in enumerate(texts(draw, 8))]
        items = [Item(str(number), question) for number, question in enumerate(questions)]
        made = LeakIndex(data_of(items))
        wanted = draw.randrange(len(items))
        before, after = texts(draw, 2)
        row = f"{before}\n{questions[wanted]}\n{after}"
        for pair in ((row, after), (before, row)):
            found = {hit.item: hit for hit in hits_of(made, [pair])}
            assert found[str(wanted)].question > 0.99, (questions[wanted], row)
            looked += 1
    assert looked == 2 * ROUNDS


def test_the_order_of_items_does_not_matter() -> None:
    draw = random.Random(f"order {strings.SEED}")
    found = 0
    for _ in range(ROUNDS):
        words = [f"w{number}" for number in range(12)]
        items = [
            Item(str(number), " ".join(draw.choices(words, k=draw.randint(1, 40))), ["w1 w2"]) for number in range(30)
        ]
        rows = [(" ".join(draw.choices(words, k=400)) + items[0].question, items[1].question) for _ in range(3)]
        rows += [(item.question, "w1 w2") for item in items[:5]]
        mixed = draw.sample(items, len(items))
        one, other = (hits_of(LeakIndex(data_of(some)), rows) for some in (items, mixed))
        assert sorted(one) == sorted(other)
        found += len(one)
    assert found > ROUNDS


def test_no_text_and_no_bytes_make_a_panic() -> None:
    draw = random.Random(f"panic {strings.SEED}")
    for _ in range(ROUNDS):
        some = [*texts(draw, 10), "", " ", "?", "a", "a b c", "\u0000", "９ ９ ９ ９ ９ ９"]
        items = [Item(text[:5], text, draw.choices(some, k=draw.randint(0, 3))) for text in some]
        data = data_of(items)
        rows = [(draw.choice(some), draw.choice(some)) for _ in range(20)]
        assert isinstance(hits_of(LeakIndex(data), rows), list)
        for _ in range(20):
            wrong = data.copy()
            wrong[draw.randrange(len(wrong))] ^= draw.randrange(1, 256)
            try:
                LeakIndex(wrong)
            except ValueError:
                continue
            raise AssertionError("a changed byte was not noticed")


def test_an_index_with_a_checksum_and_wrong_numbers_is_read_without_a_panic() -> None:
    """What a checksum does not show: bytes that somebody wrote on purpose."""
    import xxhash

    draw = random.Random(f"forged {strings.SEED}")
    words = [f"w{number}" for number in range(9)]
    items = [Item(str(number), " ".join(draw.choices(words, k=30)), ["w1", "w1 w2 w3 w4"]) for number in range(20)]
    data = data_of(items)
    rows = [(item.question, item.question) for item in items] + [("w1 w2", "w1"), ("", "")]
    columns = [pa.array([row[place] for row in rows]) for place in (0, 1)]
    read = 0
    for _ in range(40 * ROUNDS):
        wrong = data.copy()
        for _ in range(draw.randint(1, 8)):
            wrong[draw.randrange(32, len(wrong))] = draw.choice((0, 1, 127, 255))
        wrong[16:24] = np.frombuffer(xxhash.xxh3_64_intdigest(wrong[24:].tobytes()).to_bytes(8, "little"), np.uint8)
        try:
            made = LeakIndex(wrong)
        except ValueError:
            continue
        made.score(*columns)
        [made.item(number) for number in range(len(made))]
        read += 1
    assert read > ROUNDS
