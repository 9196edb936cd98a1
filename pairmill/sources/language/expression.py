"""The language of ``where:`` in YAML sources: which records are wanted.

Expressions have Python's grammar and a meaning of their own. What this module does not name is refused, so an
expression cannot reach anything else of Python. Values are booleans, numbers, texts and lists. A null and a missing
field are the same: no value. A comparison with no value is false, ``!=`` and ``not in`` included. A result computed
from no value has no value, and as a condition it is false. Values are not converted: a comparison of two types fails.

docs/decisions/0018 says why this is not CEL.
"""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

from pairmill._native import Pattern
from pairmill.errors import UsageError
from pairmill.sources.files.patterns import found_in
from pairmill.sources.language.paths import MISSING, PATHS, Path, Step

_MAX_CHARACTERS = 2000
_MAX_LEVELS = 40
_ESCAPED = re.compile(r"\\.", re.DOTALL)
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")

# What a part of an expression gives. ANY: only the record can tell.
BOOLEAN, NUMBER, TEXT, LIST, ANY = "true or false", "a number", "a text", "a list", "any value"
_KINDS: dict[type, str] = {bool: BOOLEAN, int: NUMBER, float: NUMBER, str: TEXT, list: LIST}
_EQUAL = (BOOLEAN, NUMBER, TEXT)
_ORDERED = (NUMBER, TEXT)

_COMPARISONS: dict[type[ast.cmpop], tuple[Callable[[Any, Any], bool], tuple[str, ...]]] = {
    ast.Eq: (operator.eq, _EQUAL),
    ast.NotEq: (operator.ne, _EQUAL),
    ast.Lt: (operator.lt, _ORDERED),
    ast.LtE: (operator.le, _ORDERED),
    ast.Gt: (operator.gt, _ORDERED),
    ast.GtE: (operator.ge, _ORDERED),
}
# No power: it makes a small expression a long computation.
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}

FUNCTIONS = {
    "len": "len(x)",
    "lower": "lower(text)",
    "number": "number(x)",
    "contains": "contains(x, part)",
    "startswith": "startswith(text, part)",
    "endswith": "endswith(text, part)",
    "matches": "matches(text, r'pattern')",
    "has": "has(path)",
    "path": "path('…')",
}
"""How each function is called, by name."""


class Failed(Exception):
    """An expression cannot be computed for a record: its types do not fit, or it divides by zero."""


Run = Callable[[Any], Any]


class _Part(NamedTuple):
    """A compiled part: what computes it from a record, and the kind of its value."""

    run: Run
    kind: str


class Expression:
    """A condition on a record.

    Args:
        text: as written.

    Raises:
        UsageError: without a place, if the text is not of this language.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        compiler = _Compiler(text)
        self._run = compiler.condition(compiler.tree, 0)
        self.paths = tuple(compiler.paths)
        """The paths that it reads."""
        self.asked = tuple(compiler.asked)
        """The paths that it asks for with ``has``, which may be missing."""
        self.columns = tuple(dict.fromkeys(path.column for path in (*self.paths, *self.asked)))
        """The fields of the record that it reads."""
        self.optional = tuple(dict.fromkeys(path.column for path in self.asked))
        """Those of them that may be missing."""

    # Compiled parts cannot be pickled; the text can.
    def __reduce__(self) -> tuple[type[Expression], tuple[str]]:
        return Expression, (self.text,)

    def holds(self, record: Any) -> bool:
        """Return whether the condition holds. Raises Failed if it cannot be computed for the record."""
        return _truth(self._run(record))


class _Compiler:
    def __init__(self, text: str) -> None:
        if len(text) > _MAX_CHARACTERS:
            got = f"{len(text)} characters"
            raise UsageError("the expression is too long", got=got, expected=f"at most {_MAX_CHARACTERS}")
        if not text.strip():
            raise UsageError("the expression is empty")
        # In parentheses an expression may span several lines.
        self._text = f"(\n{text}\n)"
        self.paths: list[Path] = []
        self.asked: list[Path] = []
        try:
            # Python warns of some mistakes that are refused here.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.tree = ast.parse(self._text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            reason = error.msg if isinstance(error, SyntaxError) else "nested too deeply"
            raise UsageError(
                f"not a valid expression ({reason})",
                got=repr(_short(text)),
                expected="such as level >= 3 and meta.language == 'en'",
                hint="a path that is not a Python name is written path('messages[role=user].content'), path('class')",
            ) from error

    def condition(self, node: ast.expr, depth: int) -> Run:
        """Return a part that is true or false."""
        return self._typed(node, depth, (BOOLEAN,)).run

    def _typed(self, node: ast.expr, depth: int, kinds: tuple[str, ...]) -> _Part:
        part = self._part(node, depth + 1)
        if part.kind != ANY and part.kind not in kinds:
            raise self._wrong("wrong type", node, expected=" or ".join(kinds), kind=part.kind)
        return part

    def _part(self, node: ast.expr, depth: int) -> _Part:
        if depth > _MAX_LEVELS:
            raise UsageError("the expression is nested too deeply", expected=f"at most {_MAX_LEVELS} levels")
        match node:
            case ast.BoolOp(op=op, values=values):
                decide = all if isinstance(op, ast.And) else any
                conditions = [self.condition(value, depth) for value in values]
                return _Part(lambda record: decide(_truth(run(record)) for run in conditions), BOOLEAN)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                condition = self.condition(operand, depth)
                return _Part(lambda record: not _truth(condition(record)), BOOLEAN)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                number = self._typed(operand, depth, (NUMBER,)).run
                return _Part(lambda record: _computed(operator.sub, 0, number(record)), NUMBER)
            case ast.BinOp(op=op) if type(op) in _ARITHMETIC:
                compute = _ARITHMETIC[type(op)]
                left, right = (self._typed(side, depth, (NUMBER,)).run for side in (node.left, node.right))
                return _Part(lambda record: _computed(compute, left(record), right(record)), NUMBER)
            case ast.Compare():
                # a < b < c is a < b and b < c.
                sides = [node.left, *node.comparators]
                tests = [self._test(node, *item, depth) for item in zip(sides[:-1], node.ops, sides[1:], strict=True)]
                return _Part(tests[0] if len(tests) == 1 else lambda record: all(t(record) for t in tests), BOOLEAN)
            case ast.Call():
                return self._call(node, depth)
            case ast.Constant() | ast.Name(id="true" | "false" | "null"):
                constant = self._constant(node)
                return _Part(lambda _: constant, _kind(constant))
            case ast.Name() | ast.Attribute() | ast.Subscript():
                return self._read(self._path(node))
        expected = "and, or, not, comparisons, in, + - * / // %, paths"
        raise self._wrong("not supported in where:", node, expected=expected)

    def _test(self, node: ast.Compare, left: ast.expr, op: ast.cmpop, right: ast.expr, depth: int) -> Run:
        if isinstance(op, ast.In | ast.NotIn):
            return self._membership(left, right, depth, negated=isinstance(op, ast.NotIn))
        if type(op) not in _COMPARISONS:
            raise self._wrong("not a comparison that where: supports", node, expected="== or !=, or has(path)")
        compare, kinds = _COMPARISONS[type(op)]
        first, second = self._typed(left, depth, kinds), self._typed(right, depth, kinds)
        if ANY not in (first.kind, second.kind) and first.kind != second.kind:
            raise self._wrong("two different types are compared", node, expected=f"{first.kind} on both sides")
        return lambda record: _compared(compare, kinds, first.run(record), second.run(record))

    def _membership(self, item: ast.expr, holder: ast.expr, depth: int, *, negated: bool) -> Run:
        if isinstance(holder, ast.List | ast.Tuple | ast.Set):
            values = [self._constant(element) for element in holder.elts]
            kinds = {_kind(value) for value in values}
            if len(kinds) != 1:
                raise self._wrong(
                    "the list is empty or has mixed types", holder, expected="only texts, or only numbers"
                )
            (kind,) = kinds
            known = frozenset(values)
            inside = self._typed(item, depth, (kind,)).run
            return lambda record: _among(inside(record), known, kind, negated=negated)
        part, whole = self._typed(item, depth, _EQUAL).run, self._typed(holder, depth, (TEXT, LIST)).run
        return lambda record: _held(part(record), whole(record), negated=negated)

    def _constant(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=None) | ast.Name(id="null"):
                raise self._wrong("null cannot be compared", node, expected="has(path), which is false for a null")
            case ast.Name(id="true" | "false" as word):
                return word == "true"
        value = _literal(node)
        if type(value) not in (bool, int, float, str):
            raise self._wrong("not a constant", node, expected="a text in quotes, a number, true or false")
        return value

    def _path(self, node: ast.expr) -> Path:
        match node:
            case ast.Call(func=ast.Name(id="path"), args=[ast.Constant(value=str() as text)], keywords=[]):
                return Path.parse(text)
        steps: list[Step] = []
        here = node
        while not isinstance(here, ast.Name):
            match here:
                case ast.Attribute(value=inner, attr=name):
                    steps.append(name)
                case ast.Subscript(value=inner, slice=index) if type(step := _literal(index)) in (int, str):
                    steps.append(step)
                case _:
                    raise self._wrong("not a valid path", node, expected=PATHS)
            here = inner
        return Path(self._source(node), (here.id, *reversed(steps)))

    def _read(self, path: Path) -> _Part:
        self.paths.append(path)
        return _Part(lambda record: None if (value := path.find(record)) is MISSING else value, ANY)

    def _call(self, node: ast.Call, depth: int) -> _Part:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in FUNCTIONS:
            method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            hint = f"write {FUNCTIONS[method]}" if method in FUNCTIONS else ""
            raise self._wrong("unknown function", node, expected=", ".join(FUNCTIONS), hint=hint)
        arguments = node.args
        if node.keywords or len(arguments) != FUNCTIONS[name].count(",") + 1:
            raise self._wrong("wrong arguments", node, expected=FUNCTIONS[name])

        def unary(kinds: tuple[str, ...], kind: str, function: Callable[[Any], Any]) -> _Part:
            argument = self._typed(arguments[0], depth, kinds).run
            return _Part(lambda record: _applied(name, kinds, function, argument(record)), kind)

        match name:
            case "path":
                return self._read(self._path(node))
            case "has":
                path = self._path(arguments[0])
                self.asked.append(path)
                return _Part(lambda record: path.find(record) not in (None, MISSING), BOOLEAN)
            case "contains":
                return _Part(self._membership(arguments[1], arguments[0], depth, negated=False), BOOLEAN)
            case "matches":
                pattern = self._pattern(arguments[1])
                result = unary((TEXT,), BOOLEAN, lambda text: found_in(pattern, text)).run
                return _Part(lambda record: result(record) or False, BOOLEAN)
            case "startswith" | "endswith":
                test = getattr(str, name)
                whole, part = (self._typed(argument, depth, (TEXT,)).run for argument in arguments)
                return _Part(lambda record: _tested(name, test, whole(record), part(record)), BOOLEAN)
            case "len":
                return unary((TEXT, LIST), NUMBER, len)
            case "lower":
                return unary((TEXT,), TEXT, str.lower)
        return unary((NUMBER, TEXT), NUMBER, _number)

    def _pattern(self, node: ast.expr) -> Pattern:
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            raise self._wrong("not a pattern", node, expected="a regular expression in quotes")
        written = self._source(node)
        if "\\" in written and written[:1] not in "rR":
            # Python reads '\b' as a backspace.
            raise self._wrong("the pattern would lose its backslashes", node, expected=f"r{written}")
        try:
            # As in Python, an escaped sign is the sign itself; to the engine these two are ends of words.
            return Pattern(_ESCAPED.sub(lambda match: match[0].replace("\\<", "<").replace("\\>", ">"), node.value))
        except ValueError as error:
            reason, place = _complaint(str(error))
            raise self._wrong(
                f"not a valid pattern ({reason})",
                node,
                expected="a regular expression without look-around and back-references (docs/sources.md)",
                hint=place,
            ) from error

    def _source(self, node: ast.expr) -> str:
        return ast.get_source_segment(self._text, node) or ""

    def _wrong(self, what: str, node: ast.expr, *, expected: str, hint: str = "", kind: str = "") -> UsageError:
        got = _short(self._source(node)) + (f", {kind}" if kind else "")
        return UsageError(what, got=got, expected=expected, hint=hint)


def _literal(node: ast.expr) -> Any:
    """Return the value of a constant or a negative number; None for anything else."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)) if (
            type(value) is not bool
        ):
            return -value
    return None


def _complaint(message: str) -> tuple[str, str]:
    """Return what the engine says of a pattern: the reason, and the place, which it marks below a pattern of one
    line."""
    lines = message.splitlines()
    reason = lines[-1].removeprefix("error: ").strip()
    marked = len(lines) == 4 and "^" in lines[2]
    return reason, f"look at character {lines[2].index('^') - 3} of the pattern" if marked else ""


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 80 else text[:79] + "…"


def _kind(value: Any) -> str:
    return _KINDS.get(type(value)) or type(value).__name__


def _truth(value: Any) -> bool:
    if value is None:
        return False
    if not isinstance(value, bool):
        raise Failed(f"{_kind(value)} is not a condition")
    return value


def _compared(compare: Callable[[Any, Any], bool], kinds: tuple[str, ...], left: Any, right: Any) -> bool:
    if left is None or right is None:
        return False
    kind = _kind(left)
    if kind not in kinds or _kind(right) != kind:
        raise Failed(f"{kind} and {_kind(right)} cannot be compared")
    return compare(left, right)


def _computed(compute: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    if left is None or right is None:
        return None
    if _kind(left) != NUMBER or _kind(right) != NUMBER:
        raise Failed(f"{_kind(left)} and {_kind(right)} cannot be used in arithmetic")
    try:
        return compute(left, right)
    except ArithmeticError as error:
        raise Failed(str(error)) from error


def _among(value: Any, known: frozenset[Any], kind: str, *, negated: bool) -> bool:
    if value is None:
        return False
    if _kind(value) != kind:
        raise Failed(f"{_kind(value)} cannot be in a list where each value is {kind}")
    return (value in known) != negated


def _held(part: Any, whole: Any, *, negated: bool) -> bool:
    if part is None or whole is None:
        return False
    kind = _kind(part)
    if isinstance(whole, str) and kind == TEXT:
        return (part in whole) != negated
    if not isinstance(whole, list) or kind not in _EQUAL:
        raise Failed(f"{kind} cannot be in {_kind(whole)}")
    items = [item for item in whole if item is not None]
    alike = [item for item in items if _kind(item) == kind]
    if items and not alike:
        raise Failed(f"{kind} cannot be in a list that has no value of its type")
    return (part in alike) != negated


def _applied(name: str, kinds: tuple[str, ...], function: Callable[[Any], Any], value: Any) -> Any:
    """Return a function of one value; None if there is no value."""
    if value is None:
        return None
    if _kind(value) not in kinds:
        raise Failed(f"{name} takes {' or '.join(kinds)}, not {_kind(value)}")
    return function(value)


def _tested(name: str, test: Callable[[str, str], bool], whole: Any, part: Any) -> bool:
    for value in (whole, part):
        _applied(name, (TEXT,), bool, value)
    return whole is not None and part is not None and test(whole, part)


def _number(value: int | float | str) -> int | float | None:
    """Return a number, also one written as a text, as CSV has them; None for an empty text."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if not text:
        return None
    result = _NUMBER.fullmatch(text)
    if not result or len(text) > 400:
        raise Failed("the text is not a number")
    return float(text) if result.group(1) or result.group(2) else int(text)
