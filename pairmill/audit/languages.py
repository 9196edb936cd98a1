"""Whether a text is in a language that it should be in, by its script and by words that occur in any longer text."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

_COMMON: Final = {
    "da": "og i at det er en til på som de med for ikke af jeg den der har et men om vi var fra kan hvor eller også",
    "de": "und der die das ist nicht ein eine zu den mit von auf für sich dem im auch es an als wie wir ich sie werden",
    "en": "the of and to in is that it for as with was on are be this by at from or an not you which have can we their",
    "es": "el la de que y en los se del las un por con no una su para es al lo como más pero sus le ya este sí porque",
    "fr": "le la les de des et en un une du que qui dans est pour pas au sur ce il elle plus par avec ne se sont nous",
    "it": "il la di che e in un una per non con del della le si dei da sono come al più anche gli ma alla questo nel",
    "nb": "og i at det er en til på som de med for ikke av jeg den der har et men om vi var fra kan hvor eller etter",
    "nl": "de het een van en in is dat op te zijn met voor niet aan die er als ook maar bij om naar hij ze werd wordt",
    "pl": "i w nie na się z do to że jest jak po co tak ale o za od przez czy był tym może które już dla oraz być ich",
    "pt": "o a de que e do da em um para é com não uma os no se na por mais as dos como mas foi ao ele das tem à seu",
    "sv": "och i att det är en till på som de med för inte av jag den har ett men om vi var från kan där eller också",
}
"""Frequent words by language; a language that is not here is known by its script alone, or not at all."""
_WORDS: Final = {name: frozenset(words.split()) for name, words in _COMMON.items()}
_SAME: Final = {"no": "nb", "nn": "nb"}
_SCRIPTS: Final = {
    **dict.fromkeys(_COMMON, "LATIN"),
    **dict.fromkeys(("ru", "uk", "bg", "sr", "mk", "be"), "CYRILLIC"),
    **dict.fromkeys(("zh", "ja"), "CJK"),
    **dict.fromkeys(("ar", "fa", "ur"), "ARABIC"),
    "el": "GREEK",
    "he": "HEBREW",
    "ko": "HANGUL",
    "hi": "DEVANAGARI",
    "th": "THAI",
}
_ALSO: Final = {"HIRAGANA": "CJK", "KATAKANA": "CJK"}
_LEAST_WORDS: Final = 25
_LEAST_HITS: Final = 6
_LEAST_LETTERS: Final = 20
_MOST: Final = 4_000
"""Letters, and words, of a text that are looked at."""
_RELATED: Final = 1.6
"""How many times as frequent the words of another language have to be: Danish and Norwegian share most of them."""
_TAG: Final = re.compile(r"[a-zA-Z]{2,3}")


def codes_of(declared: str) -> tuple[str, ...]:
    """Return the codes of two letters in what a card says of its languages, as in ``en, da``; others are left out."""
    known = (item.strip().lower().partition("-")[0] for item in re.split(r"[,;\s]+", declared))
    return tuple(dict.fromkeys(_SAME.get(code, code) for code in known if _TAG.fullmatch(code)))


def other_language(text: str, words: Sequence[str], declared: Iterable[str]) -> str:
    """Return the language or script that a text is in, if it is none of those declared; empty if it may be.

    Args:
        text: of a field.
        words: of it, in lower case.
        declared: codes; of a language that is not known here nothing is said.
    """
    codes = [code for code in declared if code in _SCRIPTS]
    if not codes or len(codes) < len(tuple(declared)):
        return ""
    letters = [letter for letter in text[:_MOST] if letter.isalpha()]
    if len(letters) >= _LEAST_LETTERS:
        counts = Counter(_script_of(letter) for letter in letters)
        script, count = counts.most_common(1)[0]
        if script not in {_SCRIPTS[code] for code in codes} and 2 * count > len(letters):
            return script.lower()
    if len(words) < _LEAST_WORDS:
        return ""
    seen = Counter(words[:_MOST])
    hits = {name: sum(seen[word] for word in common) for name, common in _WORDS.items()}
    best = max(hits, key=lambda name: (hits[name], name))
    own = max(hits.get(code, 0) for code in codes)
    return best if hits[best] >= _LEAST_HITS and hits[best] > _RELATED * own else ""


def _script_of(letter: str) -> str:
    name = unicodedata.name(letter, "").partition(" ")[0]
    return _ALSO.get(name, name)
