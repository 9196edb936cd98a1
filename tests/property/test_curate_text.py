"""Forms and keys for comparison against their definitions, which are written here with other tools."""

import re
import unicodedata

import pyarrow as pa
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from pairmill import _native
from pairmill.text import light
from tests.property.test_loader import GATE
from tests.support.helpers import draws

DELETED = "\u200b\ufeff\u00ad"
# All is assigned in the Unicode of Python 3.11, so that both sides know it.
ALPHABET = (
    "abzABZ0159١２²½Ⅷ \u00a0\t\n\r\u2003\u1680\u2028\u205f\x1c"
    ".,;:!?_#*+-><=/%$|`'’(“—−€→😀😀éßİıǰŉΣςΐДжÅ\u212b\u0301\u0323\u0345"
    "日々〇のカーｱ한ㄱกำ฿ລខ។မक़ि्\u0600" + DELETED
)
ONE_BY_ONE = "日々〇のカｱกำລខ។မ"
TEXTS = st.lists(st.text(ALPHABET, max_size=30) | st.text(max_size=30), min_size=1, max_size=10)
ASSIGNED = st.lists(st.text(st.characters(exclude_categories=["Cs", "Cn"]) | st.sampled_from(ALPHABET)), max_size=10)
# What is deleted may part a letter from its mark, and markers of lists count at line starts only.
PLAIN = ASSIGNED.map(lambda texts: [text.translate(dict.fromkeys(map(ord, DELETED + "-*+>"))) for text in texts])


def forms(texts: list[str]) -> tuple[list[str], list[list[str]], list[list[str]]]:
    lights, tokens, numbers = (pa.array(made) for made in _native.curate_forms(pa.array(texts, pa.large_string())))
    return lights.to_pylist(), tokens.to_pylist(), numbers.to_pylist()


def cleaned(text: str) -> str:
    return unicodedata.normalize("NFC", text).translate(dict.fromkeys(map(ord, DELETED)))


def kind(character: str) -> str:
    """A letter or a digit stands for all characters that the definition takes alike."""
    category = unicodedata.category(character)
    if character in ONE_BY_ONE:
        return "h" if category[0] == "L" else "s"
    if character == "-":
        return "-"
    if category[0] == "S" or character in "%/*":
        return "s"
    return {"L": "l", "M": "m", "N": "n"}.get(category[0], " ")


def tokens_by_definition(text: str) -> list[str]:
    text = cleaned(text).casefold()
    text = re.sub(r"^(#{1,6}|>|[-*+])[ \t]", lambda found: " " * len(found[0]), text, flags=re.MULTILINE)
    text = re.sub(r"\*\*|__|`+", lambda found: " " * len(found[0]), text)
    kinds = "".join(map(kind, text))
    return [text[found.start() : found.end()] for found in re.finditer(r"[hs]|[lmn]+|(?<![hl])-|-(?![hl])", kinds)]


def numbers_by_definition(text: str) -> list[str]:
    found = re.findall(r"\d+(?:[.,]\d+)*", cleaned(text))
    thousands = re.compile(r"\d{1,3}(,\d{3})*(\.\d+)?")
    return sorted(number.replace(",", "") if thousands.fullmatch(number) else number for number in found)


@settings(GATE, max_examples=draws(200))
@given(ASSIGNED)
def test_the_light_form_is_that_of_python(texts: list[str]) -> None:
    assert forms(texts)[0] == [light(text) for text in texts]


@settings(GATE, max_examples=draws(200))
@given(st.lists(st.text(ALPHABET)))
def test_tokens_and_numbers_are_those_of_the_definition(texts: list[str]) -> None:
    _, tokens, numbers = forms(texts)
    assert tokens == [tokens_by_definition(text) for text in texts]
    assert numbers == [numbers_by_definition(text) for text in texts]


@settings(GATE, max_examples=draws(200))
@given(st.lists(st.text("0123456789,.", max_size=24), max_size=10))
def test_commas_go_where_they_part_thousands(texts: list[str]) -> None:
    assert forms(texts)[2] == [numbers_by_definition(text) for text in texts]


@settings(GATE, max_examples=draws(200))
@given(PLAIN)
def test_a_light_form_has_itself_as_its_forms(texts: list[str]) -> None:
    lights, tokens, numbers = forms(texts)
    assert forms(lights) == (lights, tokens, numbers)


@settings(GATE, max_examples=draws(200))
@given(TEXTS)
def test_no_token_is_empty_or_holds_white_space(texts: list[str]) -> None:
    lights, tokens, _ = forms(texts)
    assert len(lights) == len(tokens) == len(texts)
    assert all(token and token.split() == [token] for row in tokens for token in row)


@settings(GATE, max_examples=draws(200))
@given(TEXTS, TEXTS)
def test_a_key_is_the_hash_of_the_lengths_and_the_light_forms(first: list[str], second: list[str]) -> None:
    rows = list(zip(first, second, strict=False))
    columns = [pa.array(column, pa.large_string()) for column in zip(*rows, strict=True)]
    for is_light in (True, False):
        expected = []
        for row in rows:
            fields = [field.encode() for field in (forms(list(row))[0] if is_light else row)]
            whole = b"".join(len(field).to_bytes(8, "little") + field for field in fields)
            expected.append(divmod(xxhash.xxh3_128_intdigest(whole), 1 << 64))
        assert [tuple(key) for key in _native.curate_exact_keys(columns, is_light).tolist()] == expected
