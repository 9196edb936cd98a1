"""What curate says of two rows, of a row and an item, and of a pair is what plain definitions say, in many scripts."""

import random
import unicodedata
from collections import Counter

import pyarrow as pa
import pytest

from pairmill import _native
from pairmill._native import LeakIndex
from tests.support.data.leaks import Item, data_of, hits_of
from tests.support.definitions.curate_verdicts import Leaks, pair_metrics, verify
from tests.support.stages.near_in_memory import verified
from tests.support.tokenizers import strings

_SAID = {
    "en": "the quick letter running between mountains yesterday nobody question answer because morning window",
    "ru": "который человек вопрос сегодня большой письмо учитель дерево решение ответ ёлка",
    "de": "Straße größere natürlich Überraschung vielleicht Gebäude außerdem Fenster",
    "el": "ερώτηση απάντηση δάσκαλος Σίσυφος οδός γιατί σχολείο",
    "hi": "नमस्ते विद्यालय प्रश्न उत्तर क्योंकि पुस्तक मनुष्य",
    "ar": "السلام عليكم المدرسة الكتاب السؤال الجواب مختلف",
    "ko": "학교에서 질문은 대답을 선생님이 오늘 때문에",
    "tr": "İstanbul ışık soru cevap öğretmen çünkü farklı",
    "zh": "今 天 天 气 很 好 我 们 去 学 校 读 书 学 习 数 学 问 题 答 案 因 为 不 同 的 老 师 花 园",
    "th": "ส ว ั ส ด ี ค ร ั บ ภ า ษ า ไ ท ย",
}
WORDS = {language: words.split() for language, words in _SAID.items()}
ODD = ["3", "17", "1,000", "3.5", "२", "+", "-", "=", "x2", "½", "%", "well-known", "**b**", "`c`", "—", "!"]
ROUNDS = 12


class Writer:
    """Texts in one of the languages."""

    def __init__(self, draw: random.Random) -> None:
        self.draw, self.language = draw, draw.choice(list(WORDS))
        self.glue = "" if self.language in ("zh", "th") and draw.random() < 0.7 else " "

    def word(self) -> str:
        return self.draw.choice(ODD if self.draw.random() < 0.06 else WORDS[self.language])

    def words(self, *lengths: int) -> list[str]:
        return [self.word() for _ in range(self.draw.choice(lengths))]

    def text(self, *lengths: int) -> str:
        return self.glue.join(self.words(*lengths))

    def misspelt(self, word: str) -> str:
        if len(word) < 4:
            return word
        at = self.draw.randrange(1, len(word) - 1)
        swapped, cut = word[:at] + word[at + 1] + word[at] + word[at + 2 :], word[:at] + word[at + 1 :]
        return self.draw.choice([swapped, cut, word[:at] + self.draw.choice(word) + word[at:]])

    def edited(self, words: list[str]) -> list[str]:
        some, how = list(words), self.draw.randrange(6)
        for _ in range(self.draw.choice([1, 1, 2, 3, len(some) // 10]) if some and how in (1, 2) else 0):
            at = self.draw.randrange(len(some))
            some[at] = self.misspelt(some[at]) if how == 1 else self.word()
        if how == 3:
            some = [*self.words(*range(1, 8)), *some]
        if how == 4:
            some += self.words(*range(1, 20))
        if how == 5 and len(some) > 12:
            at = self.draw.randrange(len(some) - 10)
            some[at : at + self.draw.randrange(6, 12)] = self.words(*range(14))
        return some

    def formatted(self, words: list[str]) -> str:
        text = self.glue.join(words)
        marked = [text.replace(" ", "\n", 1), f"- {text}", f"**{text}**", f'"{text}"', f"{text}\u200b.", text.upper()]
        return self.draw.choice([*[text] * 8, *marked, unicodedata.normalize("NFD", text)])


def test_two_rows_are_duplicates_by_the_rules_of_the_definition() -> None:
    draw = random.Random(f"pairs {strings.SEED}")
    seen: Counter[tuple[str, bool]] = Counter()
    for guard, least, shortest in ROUNDS * [("both", 20, 16), ("instruction", 20, 16), ("off", 5, 3)]:
        rows: tuple[list[tuple[str, str]], list[tuple[str, str]]] = ([], [])
        for _ in range(100):
            writer = Writer(draw)
            asked, said = writer.words(5, 15, 16, 17, 25, 41, 60, 100), writer.words(1, 2, 5, 19, 20, 21, 60)
            other = writer.edited(said) if draw.random() < 0.5 else said
            rows[0].append((writer.formatted(asked), writer.formatted(said)))
            rows[1].append((writer.formatted(writer.edited(asked)), writer.formatted(other)))
        settings = _native.NearSettings(number_guard=guard, min_response=least, min_instruction=shortest)
        a, b = ([pa.array([row[at] for row in some], pa.large_string()) for at in (0, 1)] for some in rows)
        for one, two, (*verdict, instruction, response) in zip(*rows, verified(a, b, settings), strict=True):  # type: ignore[arg-type]
            wanted = verify(one, two, guard, least, shortest)
            assert verdict == [wanted.duplicate, wanted.rule], (one, two)
            assert (instruction, response) == pytest.approx(wanted[2:], abs=1e-9), (one, two)
            seen[wanted.rule, wanted.duplicate] += 1
    assert len(seen) == 10, seen


def test_a_row_has_of_an_item_what_the_definition_says() -> None:
    draw = random.Random(f"leaks {strings.SEED}")
    seen: Counter[str] = Counter()
    for _ in range(ROUNDS):
        items: list[Item] = []
        for number in range(draw.choice([1, 3, 20])):
            writer = Writer(draw)
            question = writer.words(1, 3, 4, 5, 6, 12, 13, 20, 31, 32, 40, 80)
            if items and draw.random() < 0.3:
                question = writer.edited(draw.choice(items).question.split(" "))
            answers = [
                draw.choice([writer.text(1, 2, 3, 4, 10, 30), "B", "yes", "水", "?!"]) for _ in range(number % 4)
            ]
            items.append(Item(str(number), writer.glue.join(question), answers, "one" if number < 10 else "two"))
        rows = []
        for at in range(40):
            writer, item = Writer(draw), draw.choice(items)
            question = writer.glue.join(writer.edited([*item.question])) if at % 3 else item.question
            answer = draw.choice([*item.answers, writer.text(5)])
            rows.append(
                draw.choice(
                    [
                        (question, answer),
                        (question, f"{writer.text(3, 60)} {answer}"),
                        (f"{writer.text(5, 200, 500)} {item.question} {writer.text(0, 5, 300)}", answer),
                        (writer.text(10), f"{writer.text(0, 100, 700)} {item.question} {writer.text(0, 60)} {answer}"),
                        (question.upper(), f"{answer} {writer.text(80)}"),
                        (item.question, f"{item.question} {answer}"),
                        (writer.text(10, 400), writer.text(10, 400)),
                    ]
                )
            )
        definition = Leaks(items)
        found = {(hit.row, hit.benchmark, hit.item): hit for hit in hits_of(LeakIndex(data_of(items)), rows)}
        wanted = {(row, *key): leak for row, pair in enumerate(rows) for key, leak in definition.of(*pair).items()}
        assert found.keys() <= wanted.keys()
        assert all(wanted[key].at_threshold for key in wanted.keys() - found.keys())
        for key, hit in found.items():
            leak = wanted[key]
            assert (hit.verdict, hit.field) == (leak.verdict, leak.field), (rows[key[0]], key)
            assert (hit.question, hit.answer) == pytest.approx((leak.question, leak.answer), abs=1e-9)
            seen[leak.verdict] += 1
    assert len(seen) == 4, seen


def test_metrics_of_pairs_are_those_of_the_definition() -> None:
    draw = random.Random(f"metrics {strings.SEED}")
    pairs = []
    for _ in range(300):
        writer = Writer(draw)
        asked = writer.text(0, 1, 3, 20, 60)
        pairs.append((asked, f"{writer.text(0, 2, 20)} {asked[: draw.randrange(len(asked) + 1)]} {asked[:30]}"))
    found = _native.curate_pair_metrics(*(pa.array(column, pa.large_string()) for column in zip(*pairs, strict=True)))
    both = zip(found["response_instruction_ratio"].tolist(), found["copy_ratio"].tolist(), strict=True)
    for pair, got in zip(pairs, both, strict=True):
        assert got == pytest.approx(pair_metrics(*pair), abs=1e-12), pair
