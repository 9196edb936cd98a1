"""The instructions of IFEval (Zhou et al. 2023, arXiv:2311.07911): whether a text follows each of them.

Verdicts are those of the published checks, as lm-evaluation-harness has them, but for one in :data:`CHECKS`: sentences
are counted by rule there. :data:`BY_PUNKT` counts them by NLTK's trained model, as the harness does.
"""

import importlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from pairmill.errors import UsageError

Values = Mapping[str, Any]
ANSWERS: Final = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
_FENCES: Final = ("```json", "```Json", "```JSON", "```")
_POSTSCRIPTS: Final = {"P.P.S": r"\s*p\.\s?p\.\s?s.*$", "P.S.": r"\s*p\.\s?s\..*$"}
_ABBREVIATED: Final = re.compile(r"(?:\b(?:[A-Za-z]|Mrs?|Ms|Dr|Prof|Sr|Jr|St|vs|etc|e\.g|i\.e|Inc|Ltd|Co|No))\.$")
_SENTENCE: Final = re.compile(r"[.!?]+[\"')\]]*(?=\s+[^\sa-z])")
_APART: Final = re.compile(r"[;@#$%&?!()\[\]{}<>\"“”«»]|,(?!\d)|:(?!\d)|--|\.\.\.")
_CONTRACTION: Final = re.compile(r"(?<=[^' ])('(?:S|M|D|LL|RE|VE)|N'T)(?=\s|$)")


def sentences(text: str) -> int:
    """Count the sentences of a text, by rule: a mark that ends one, then a word that begins with no small letter."""
    ends = [match.end() for match in _SENTENCE.finditer(text)]
    ended = [at for at in ends if not _ABBREVIATED.search(text[max(0, at - 8) : at])]
    return len(ended) + bool(text.strip())


def punkt_sentences(text: str) -> int:
    """Count the sentences of a text by NLTK's model of English, Punkt.

    Raises:
        UsageError: NLTK, or the model, is not installed.
    """
    return len(_punkt().tokenize(text))


@lru_cache(maxsize=1)
def _punkt() -> Any:
    try:
        return importlib.import_module("nltk.tokenize.punkt").PunktTokenizer("english")  # an extra that few need
    except ImportError as error:
        what, hint = "needs NLTK, not installed here", "pip install nltk==3.10.4; benchmarks=ifeval counts by rule"
        raise UsageError(what, where="ifeval_punkt", hint=hint) from error
    except LookupError as error:
        hint = "python -m nltk.downloader punkt_tab, or NLTK_DATA=<a folder that has tokenizers/punkt_tab/english>"
        raise UsageError("needs NLTK's model of English, not here", where="ifeval_punkt", hint=hint) from error


def capital_words(text: str) -> int:
    """Count the words without a small letter and with a capital; what a contraction adds is a word of its own."""
    words = _CONTRACTION.sub(r" \1", _APART.sub(" ", text)).split()
    return sum(word.isupper() for word in words)


def _compared(count: int, least: Any, relation: Any) -> bool:
    return count < int(least) if relation == "less than" else count >= int(least)


def _language(text: str) -> str | None:
    """Return the code of a text's language; None if it has none."""
    try:
        langdetect = importlib.import_module("langdetect")  # an extra that few need
    except ImportError as error:
        hint = "pip install langdetect==1.0.9"
        raise UsageError("needs langdetect, not installed here", where="ifeval", hint=hint) from error
    langdetect.DetectorFactory.seed = 0
    try:
        return str(langdetect.detect(text))
    except langdetect.LangDetectException:
        return None


def _paragraphs(text: str, values: Values) -> bool:
    parts = [bool(part.strip()) for part in re.split(r"\s?\*\*\*\s?", text)]
    inner = parts[1:-1] if len(parts) > 1 else []
    return all(inner) and sum(parts) == int(values["num_paragraphs"])


def _first_word(text: str, values: Values) -> bool:
    parts = text.split("\n\n")
    count, number = sum(bool(part.strip()) for part in parts), int(values["nth_paragraph"])
    part = parts[number - 1].strip() if number <= count else ""
    if not part:
        return False
    word = re.split(r"[.,?!'\"]", part.split()[0].lstrip("'").lstrip('"'))[0].lower()
    return count == int(values["num_paragraphs"]) and word == values["first_word"].lower()


def _json(text: str, values: Values) -> bool:
    text = text.strip()
    for fence in _FENCES:
        text = text.removeprefix(fence)
    try:
        json.loads(text.removesuffix("```").strip())
    except (ValueError, RecursionError):
        return False
    return True


def _two_responses(text: str, values: Values) -> bool:
    parts = [part.strip() for part in text.split("******")]
    whole = [part for part in parts if part]
    return all(parts[1:-1]) and len(whole) == 2 and whole[0] != whole[1]


def _postscript(text: str, values: Values) -> bool:
    marker = values["postscript_marker"].strip()
    pattern = _POSTSCRIPTS.get(marker, rf"\s*{marker.lower()}.*$")
    return re.search(pattern, text.lower(), re.MULTILINE) is not None


def _highlights(text: str, values: Values) -> bool:
    single = [part for part in re.findall(r"\*[^\n\*]*\*", text) if part.strip("*").strip()]
    double = [part for part in re.findall(r"\*\*[^\n\*]*\*\*", text) if part[2:-2].strip()]
    return len(single) + len(double) >= int(values["num_highlights"])


def _bullets(text: str, values: Values) -> bool:
    bullets = re.findall(r"^\s*\*[^\*].*$", text, re.MULTILINE) + re.findall(r"^\s*-.*$", text, re.MULTILINE)
    return len(bullets) == int(values["num_bullets"])


def _sections(text: str, values: Values) -> bool:
    marks = re.split(rf"\s?{values['section_spliter'].strip()}\s?\d+\s?", text)
    return len(marks) - 1 >= int(values["num_sections"])


def _titles(text: str, values: Values) -> bool:
    return any(title.lstrip("<").rstrip(">").strip() for title in re.findall(r"<<[^\n]+>>", text))


def _quoted(text: str, values: Values) -> bool:
    text = text.strip()
    return len(text) > 1 and text[0] == text[-1] == '"'


def _has_word(word: str, text: str) -> bool:
    return re.search(rf"\b{word}\b", text, re.IGNORECASE) is not None


CHECKS: Final[Mapping[str, Callable[[str, Values], bool]]] = {
    "keywords:existence": lambda text, values: all(re.search(word, text, re.IGNORECASE) for word in values["keywords"]),
    "keywords:frequency": lambda text, values: _compared(
        len(re.findall(values["keyword"].strip(), text, re.IGNORECASE)), values["frequency"], values["relation"]
    ),
    "keywords:forbidden_words": lambda text, values: (
        not any(_has_word(word, text) for word in values["forbidden_words"])
    ),
    "keywords:letter_frequency": lambda text, values: _compared(
        text.lower().count(values["letter"].strip().lower()), values["let_frequency"], values["let_relation"]
    ),
    "language:response_language": lambda text, values: _language(text) in (values["language"], None),
    "length_constraints:number_sentences": lambda text, values: _compared(
        sentences(text), values["num_sentences"], values["relation"]
    ),
    "length_constraints:number_paragraphs": _paragraphs,
    "length_constraints:number_words": lambda text, values: _compared(
        len(re.findall(r"\w+", text)), values["num_words"], values["relation"]
    ),
    "length_constraints:nth_paragraph_first_word": _first_word,
    "detectable_content:number_placeholders": lambda text, values: (
        len(re.findall(r"\[.*?\]", text)) >= int(values["num_placeholders"])
    ),
    "detectable_content:postscript": _postscript,
    "detectable_format:number_bullet_lists": _bullets,
    "detectable_format:constrained_response": lambda text, values: any(answer in text for answer in ANSWERS),
    "detectable_format:number_highlighted_sections": _highlights,
    "detectable_format:multiple_sections": _sections,
    "detectable_format:json_format": _json,
    "detectable_format:title": _titles,
    "combination:two_responses": _two_responses,
    "combination:repeat_prompt": lambda text, values: (
        text.strip().lower().startswith(values["prompt_to_repeat"].strip().lower())
    ),
    "startend:end_checker": lambda text, values: (
        text.strip().strip('"').lower().endswith(values["end_phrase"].strip().lower())
    ),
    "startend:quotation": _quoted,
    "change_case:capital_word_frequency": lambda text, values: _compared(
        capital_words(text), values["capital_frequency"], values["capital_relation"]
    ),
    "change_case:english_capital": lambda text, values: text.isupper() and _language(text) in ("en", None),
    "change_case:english_lowercase": lambda text, values: text.islower() and _language(text) in ("en", None),
    "punctuation:no_comma": lambda text, values: "," not in text,
}
"""By name, what says whether a text follows the instruction with these parameters."""


BY_PUNKT: Final[Mapping[str, Callable[[str, Values], bool]]] = {
    **CHECKS,
    "length_constraints:number_sentences": lambda text, values: _compared(
        punkt_sentences(text), values["num_sentences"], values["relation"]
    ),
}


def follows(
    name: str,
    values: Values,
    text: str,
    *,
    loose: bool = False,
    checks: Mapping[str, Callable[[str, Values], bool]] = CHECKS,
) -> bool:
    """Return whether a text follows an instruction; loose: or one of eight forms of it does."""
    texts = _forms(text) if loose else iter((text,))
    return any(form.strip() and checks[name](form, values) for form in texts)


def _forms(text: str) -> Iterator[str]:
    """Yield the text without its first line, its last one or both, each also without asterisks."""
    lines = text.split("\n")
    cut = (lines[1:], lines[:-1], lines[1:-1])
    for form in (text, *("\n".join(part).strip() for part in cut)):
        yield from (form, form.replace("*", ""))
