"""The light form of a text, and draws that belong to it."""

import pytest

from pairmill.text import hash64, light


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("", ""),
        (" one\t two\r\n\nthree ", "one two three"),
        ("cafe\u0301", "caf\u00e9"),
        ("zero\u200bwidth \ufeffmark so\u00adft", "zerowidth mark soft"),
        ("a\u00a0\u2003\u2028b\u3000", "a b"),
        ("x² ½ İ ﬁ", "x² ½ İ ﬁ"),  # compatibility forms and case stay
        ("a \u200b b", "a b"),  # what is deleted leaves one run of white space
    ],
)
def test_the_light_form(text: str, form: str) -> None:
    assert light(text) == form
    assert light(form) == form


def test_the_hash_is_xxh3_of_salt_and_text() -> None:
    assert hash64("holdout", "x") == 13098669551522845736
    assert hash64("holdout", "x", 1) != hash64("holdout", "x") != hash64("other", "x")
    assert hash64("", "\ud800")  # a question may be from a text that no row has
