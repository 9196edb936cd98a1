"""Which tasks are meant: by the beginnings of their names, by globs or by a regular expression.

A glob is over the whole name: ``*`` is any text, ``?`` a character, ``[abc]``, ``[a-z]`` and ``[!abc]`` a character of
a set or of none, ``{a,b}`` one of several texts. A character that would mean something is written as a set: ``[*]``.
"""

from __future__ import annotations

import fnmatch
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple, Self

from pairmill.errors import UsageError

KEYS: Final = ("prefix", "match", "re", "not")
"""The keys that say which tasks are meant, in rules, sources and overrides."""

_MOST: Final = 10_000
_SET: Final = r"\[!?\]?[^\]]*\]"
_SPECIAL: Final = re.compile(rf"{_SET}|[*?]")
_LITERAL: Final = re.compile(rf"{_SET}|[*?{{}},()|+^$\\\\]")
_SIGNS: Final = re.compile(rf"{_SET}|.", re.DOTALL)

Test = Callable[[str], bool]


@dataclass(frozen=True)
class Selector:
    """The tasks that are meant: those of ``prefixes``, ``globs`` or ``regex``, but none of ``without``.

    Args:
        prefixes: beginnings of names.
        globs: over whole names.
        regex: over whole names; empty = none.
        without: globs of names that are not meant.
    """

    prefixes: tuple[str, ...] = ()
    globs: tuple[str, ...] = ()
    regex: str = ""
    without: tuple[str, ...] = ()

    @classmethod
    def parse(cls, item: Mapping[str, Any], where: str) -> Self:
        """Read the keys of :data:`KEYS` and ``prefixes``.

        Args:
            item: as YAML gives it; other keys are left to the caller.
            where: file and number of what has them, for messages.

        Raises:
            UsageError: there is none, or more than one of those that name tasks, or one is not valid.
        """
        ways = [key for key in ("prefix", "prefixes", "match", "re") if key in item]
        expected = "prefix: text, match: glob or re: pattern"
        if len(ways) != 1:
            got = " and ".join(ways) or ", ".join(map(str, item))
            what = "more than one key says which tasks it is for" if ways else "nothing says which tasks it is for"
            raise UsageError(what, where=where, got=got, expected=expected)
        key, value = ways[0], item[ways[0]]
        texts = _texts(value) if key in ("match", "prefixes") else _texts(value)[:1] if isinstance(value, str) else ()
        if not texts:
            kind = "a text or a list of texts" if key in ("match", "prefixes") else "a text"
            raise UsageError(f"{key} is not {kind}", where=where, got=repr(value), expected=expected)
        without = _texts(item.get("not", ()))
        if "not" in item and not without:
            raise UsageError("not: is not a glob or a list of globs", where=where, got=repr(item["not"]))
        for glob in (*(texts if key == "match" else ()), *without):
            expand(glob, where)
        if key == "re":
            compile_pattern(texts[0], where)
            return cls(regex=texts[0], without=without)
        return cls(globs=texts, without=without) if key == "match" else cls(prefixes=texts, without=without)

    @cached_property
    def label(self) -> str:
        """What the file says, on one line: of a prefix only its text."""
        texts = [", ".join(self.prefixes)] if self.prefixes else []
        texts += [f"match {', '.join(self.globs)}"] if self.globs else []
        texts += [f"re {self.regex}"] if self.regex else []
        return " or ".join(texts) + (f" not {', '.join(self.without)}" if self.without else "")

    def to_manifest(self) -> dict[str, Any]:
        """Return it as the keys of a file."""
        result: dict[str, Any] = {}
        if self.prefixes:
            single = len(self.prefixes) == 1
            result = {"prefix": self.prefixes[0]} if single else {"prefixes": [*self.prefixes]}
        result |= {"match": [*self.globs]} if self.globs else {}
        result |= {"re": self.regex} if self.regex else {}
        return {**result, "not": [*self.without]} if self.without else result

    def below(self, before: str) -> Selector:
        """Return it for names that have ``before`` before them."""
        literal = re.sub(r"[*?[{}]", lambda match: f"[{match[0]}]", before)
        return Selector(
            tuple(before + prefix for prefix in self.prefixes),
            tuple(literal + glob for glob in self.globs),
            f"{re.escape(before)}(?:{self.regex})" if self.regex else "",
            tuple(literal + glob for glob in self.without),
        )


class _Branch(NamedTuple):
    """A way in which a selector matches: a literal beginning, and what else is to hold; None = nothing."""

    number: int
    head: str
    test: Test | None


class Matcher:
    """Many selectors at once. A name is compared only with those whose literal beginnings it has.

    Args:
        selectors: in order.
    """

    def __init__(self, selectors: Sequence[Selector]) -> None:
        at: dict[str, list[_Branch]] = {}
        for number, selector in enumerate(selectors):
            for branch in _branches(number, selector):
                at.setdefault(branch.head, []).append(branch)
        self._heads = sorted(at)
        self._at = [at[head] for head in self._heads]
        # Of sorted texts, those that begin a text are on the stack when it comes.
        self._above: list[int] = []
        stack: list[int] = []
        for place, head in enumerate(self._heads):
            while stack and not head.startswith(self._heads[stack[-1]]):
                stack.pop()
            self._above.append(stack[-1] if stack else -1)
            stack.append(place)
        self._known: dict[str, tuple[int, ...]] = {}

    def numbers(self, name: str) -> tuple[int, ...]:
        """Return the numbers of all selectors that match a name, from 0, ascending."""
        known = self._known.get(name)
        if known is None:
            branches = self._candidates(name)
            known = tuple(sorted({item.number for item in branches if item.test is None or item.test(name)}))
            self._known[name] = known
        return known

    def first(self, name: str) -> int:
        """Return the number of the first selector that matches a name; -1 if none does."""
        numbers = self.numbers(name)
        return numbers[0] if numbers else -1

    def hidden(self) -> list[tuple[int, int]]:
        """List the selectors that can match nothing first, each with a number before it that takes all it matches.

        Only prefixes hide here, and globs that are one (``flan__*``); what else hides, names of tasks tell.
        """
        by: dict[int, list[int]] = {}
        for head, branches in zip(self._heads, self._at, strict=True):
            plain = min((item.number for item in self._candidates(head) if item.test is None), default=-1)
            for item in branches:
                by.setdefault(item.number, []).append(plain if 0 <= plain < item.number else -1)
        return sorted((number, max(hiding)) for number, hiding in by.items() if min(hiding) >= 0)

    def _candidates(self, name: str) -> list[_Branch]:
        place = bisect_right(self._heads, name) - 1
        while place >= 0 and not name.startswith(self._heads[place]):
            place = self._above[place]
        result: list[_Branch] = []
        while place >= 0:
            result += self._at[place]
            place = self._above[place]
        return result


def literal_of(label: str) -> str:
    """Return the longest text that the names of a label's tasks have, to find the nearest name by."""
    text = label.split(" not ")[0].removeprefix("match ").removeprefix("re ")
    return max(_LITERAL.split(text), key=len).strip("_ ")


def compile_pattern(text: str, where: str = "") -> re.Pattern[str]:
    """Compile a regular expression over whole names. Raises UsageError if it is none."""
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        got = f"{text!r}: {error}"
        raise UsageError("not a regular expression", where=where, got=got) from error


def expand(glob: str, where: str = "") -> list[str]:
    """Write a glob with braces as globs without.

    Args:
        glob: with ``{a,b}``, also within each other.
        where: for messages.

    Raises:
        UsageError: a brace or a set is not closed, braces have no comma, or they stand for very many globs.
    """
    signs = _SIGNS.findall(glob)
    if "[" in signs:
        raise UsageError("a set without its ]", where=where, got=repr(glob), hint="a bracket itself is written [[]")
    texts, end = _expand(signs, 0, glob, where)
    if end < len(signs):
        raise UsageError("a } without its {", where=where, got=repr(glob), hint="a brace itself is written [}]")
    return texts


def _expand(signs: Sequence[str], at: int, glob: str, where: str, depth: int = 0) -> tuple[list[str], int]:
    """Return the texts from a sign on, and the sign after the brace that ends them."""
    choices: list[str] = []
    texts, commas = [""], 0
    while at < len(signs):
        sign, at = signs[at], at + 1
        if sign == "{":
            inner, at = _expand(signs, at, glob, where, depth + 1)
            texts = [text + more for text in texts for more in inner]
        elif depth and sign == ",":
            choices, texts, commas = choices + texts, [""], commas + 1
        elif sign == "}" and not depth:
            return texts, at - 1
        elif sign == "}":
            if not commas:
                hint = "braces choose between texts: {a,b}; a brace itself is written [{]"
                raise UsageError("braces without a comma", where=where, got=repr(glob), hint=hint)
            return choices + texts, at
        else:
            texts = [text + sign for text in texts]
        if len(texts) + len(choices) > _MOST:
            raise UsageError("the braces stand for too many globs", where=where, expected=f"at most {_MOST:,}")
    if depth:
        raise UsageError("a { without its }", where=where, got=repr(glob), hint="a brace itself is written [{]")
    return texts, at


def _branches(number: int, selector: Selector) -> list[_Branch]:
    result = [_Branch(number, prefix, None) for prefix in selector.prefixes]
    for glob in selector.globs:
        for plain in expand(glob, glob):
            head = _SPECIAL.split(plain, maxsplit=1)[0]
            rest = plain[len(head) :]
            result.append(_Branch(number, head, None if rest == "*" else _test_of(plain, head)))
    if selector.regex:
        compiled = compile_pattern(selector.regex)
        result.append(_Branch(number, "", lambda name: compiled.fullmatch(name) is not None))
    if selector.without:
        without = Matcher([Selector(globs=selector.without)])
        result = [_Branch(item.number, item.head, _unless(item.test, without)) for item in result]
    return result


def _test_of(plain: str, head: str) -> Test:
    """Return the test of a glob without braces."""
    if plain == head:
        return lambda name: name == plain
    # Most names lack the longest text that is always there, and are told apart by it sooner.
    text = max(_SPECIAL.split(plain[len(head) :]), key=len)
    compiled = re.compile(fnmatch.translate(plain)).match
    return lambda name: text in name and compiled(name) is not None


def _unless(test: Test | None, without: Matcher) -> Test:
    return lambda name: (test is None or test(name)) and not without.numbers(name)


def _texts(value: Any) -> tuple[str, ...]:
    """Return a text or the texts of a list; nothing if it is neither."""
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list | tuple) or not all(isinstance(item, str) for item in values):
        return ()
    return tuple(values)
