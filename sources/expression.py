"""The language of mapped sources: paths into a record, and expressions that say which records are wanted.

Expressions have Python's grammar and a meaning of their own; what is not named in this file is refused, so nothing of
Python can be reached. A value is a boolean, a number, a text or a list. Null and what is missing are the same: no
value. A comparison with no value is false, ``!=`` and ``not in`` included; what is computed from no value is none; a
condition without a value is false. Values of different kinds are not converted: comparing them fails.
"""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pairmill._native import Pattern
from pairmill.errors import UsageError

MISSING: Final = object()
"""What a path finds that leads nowhere."""

_LONGEST_PATH = 200
_LONGEST = 2000
_DEEPEST = 40

_QUOTED = r"'[^']*'|\"[^\"]*\""
_STEP = re.compile(
    rf"""(?:^|(?<=.)\.)(?P<name>[\w-]+)
    | \[(?P<index>-?[0-9]{{1,6}})\]
    | \[(?P<quoted>{_QUOTED})\]
    | \[(?P<key>[\w-]+)=(?P<value>[\w-]+|{_QUOTED})\]""",
    re.VERBOSE,
)
_ESCAPED = re.compile(r"\\.", re.DOTALL)
_PLAIN = re.compile(r"[\w-]+")
_PATHS = "a path such as question, meta.language, messages[0].content, messages[role=user].content, ['a column']"
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")


class Failed(Exception):
    """An expression does not fit a record: kinds that do not go together, a division by zero, no number."""


class First(NamedTuple):
    """A step to the first element of a list whose ``key`` is the text ``value``."""

    key: str
    value: str

    def fits(self, item: Any) -> bool:
        """Whether this is such an element."""
        return isinstance(item, dict) and item.get(self.key) == self.value


Step = str | int | First


@dataclass(frozen=True)
class Path:
    """A way into a record: keys of objects, indices of lists, elements by one of their texts."""

    text: str
    steps: tuple[Step, ...]

    @classmethod
    def parse(cls, text: str) -> Path:
        """Raises UsageError, without a place, for what is no path."""
        if len(text) > _LONGEST_PATH:
            raise UsageError("the path is too long", got=f"{len(text)} characters", expected=f"at most {_LONGEST_PATH}")
        steps: list[Step] = []
        place = 0
        while place < len(text) and (found := _STEP.match(text, place)):
            steps.append(_step(found))
            place = found.end()
        if place < len(text) or not steps or not isinstance(steps[0], str):
            hint = "a template has its paths in braces: 'Solve: {question}'" if " " in text else ""
            raise UsageError("is no path", got=repr(text), expected=_PATHS, hint=hint)
        return cls(text, tuple(steps))

    @property
    def column(self) -> str:
        """The record's own field that the path starts at."""
        assert isinstance(self.steps[0], str)
        return self.steps[0]

    def reach(self, record: Any) -> tuple[int, Any]:
        """How many of the steps lead somewhere, and what is there."""
        value = record
        for depth, step in enumerate(self.steps):
            below = _below(value, step)
            if below is MISSING:
                return depth, value
            value = below
        return len(self.steps), value

    def up_to(self, depth: int) -> str:
        """Its first ``depth`` steps as they are written."""
        return "".join(_written(step) for step in self.steps[:depth]).removeprefix(".")

    def instead(self, depth: int, step: Step) -> Path:
        """The path with another step in the place of the one at ``depth``."""
        steps = (*self.steps[:depth], step, *self.steps[depth + 1 :])
        return Path("".join(map(_written, steps)).removeprefix("."), steps)

    def find(self, record: Any) -> Any:
        """What stands there: MISSING if the path leads nowhere, None if it meets a null."""
        value = record
        for step in self.steps:
            if value is None:
                return None
            value = _below(value, step)
            if value is MISSING:
                return MISSING
        return value


def _below(value: Any, step: Step) -> Any:
    if isinstance(step, str):
        return value.get(step, MISSING) if isinstance(value, dict) else MISSING
    if not isinstance(value, list):
        return MISSING
    if isinstance(step, int):
        return value[step] if -len(value) <= step < len(value) else MISSING
    return next((item for item in value if step.fits(item)), MISSING)


def _written(step: Step) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    if isinstance(step, First):
        return f"[{step.key}={step.value if _PLAIN.fullmatch(step.value) else _quoted(step.value)}]"
    return f".{step}" if _PLAIN.fullmatch(step) else f"[{_quoted(step)}]"


def _quoted(text: str) -> str:
    return f'"{text}"' if "'" in text else f"'{text}'"


def _step(found: re.Match[str]) -> Step:
    name, index, quoted, key, value = found.group("name", "index", "quoted", "key", "value")
    if name is not None:
        return str(name)
    if index is not None:
        return int(index)
    if quoted is not None:
        return str(quoted[1:-1])
    return First(key, value[1:-1] if value[0] in "'\"" else value)


# What an expression's part gives. ANY: only the record can tell.
BOOLEAN, NUMBER, TEXT, LIST, ANY = "true or false", "a number", "a text", "a list", "any value"
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


class Expression:
    """A condition on a record.

    Args:
        text: as written.

    Raises:
        UsageError: without a place, for what is not of this language.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        compiler = _Compiler(text)
        self._run = compiler.condition(compiler.tree, 0)
        self.paths = tuple(compiler.paths)
        """What it reads."""
        self.asked = tuple(compiler.asked)
        """What it asks for with ``has``: it need not be there."""
        self.columns = tuple(dict.fromkeys(path.column for path in (*self.paths, *self.asked)))
        """The record's fields that it reads."""
        self.optional = tuple(dict.fromkeys(path.column for path in self.asked))
        """Those of them that it asks for: they need not be there."""

    # What is compiled does not cross process borders; its text does.
    def __reduce__(self) -> tuple[type[Expression], tuple[str]]:
        return Expression, (self.text,)

    def holds(self, record: Any) -> bool:
        """Whether the condition holds. Raises Failed where it does not fit the record."""
        return _truth(self._run(record))


Run = Callable[[Any], Any]


class _Part(NamedTuple):
    """A compiled part: what computes it, and its kind."""

    run: Run
    kind: str


class _Compiler:
    def __init__(self, text: str) -> None:
        if len(text) > _LONGEST:
            got = f"{len(text)} characters"
            raise UsageError("the expression is too long", got=got, expected=f"at most {_LONGEST}")
        if not text.strip():
            raise UsageError("the expression is empty")
        # In parentheses an expression may go over several lines.
        self._text = f"(\n{text}\n)"
        self.paths: list[Path] = []
        self.asked: list[Path] = []
        try:
            # Python warns of some mistakes; what is wrong is refused here.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.tree = ast.parse(self._text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            reason = error.msg if isinstance(error, SyntaxError) else "it is nested too deeply"
            raise UsageError(
                f"is no expression ({reason})",
                got=repr(_short(text)),
                expected="such as level >= 3 and meta.language == 'en'",
                hint="what is no Python name is written path('messages[role=user].content'), path('class')",
            ) from error

    def condition(self, node: ast.expr, depth: int) -> Run:
        """A part that is true or false."""
        return self._of(node, depth, (BOOLEAN,)).run

    def _of(self, node: ast.expr, depth: int, kinds: tuple[str, ...]) -> _Part:
        part = self._part(node, depth + 1)
        if part.kind != ANY and part.kind not in kinds:
            raise self._wrong("is of the wrong kind", node, expected=" or ".join(kinds), kind=part.kind)
        return part

    def _part(self, node: ast.expr, depth: int) -> _Part:
        if depth > _DEEPEST:
            raise UsageError("the expression is nested too deeply", expected=f"at most {_DEEPEST} levels")
        match node:
            case ast.BoolOp(op=ast.And(), values=values):
                conditions = [self.condition(value, depth) for value in values]
                return _Part(lambda record: all(_truth(run(record)) for run in conditions), BOOLEAN)
            case ast.BoolOp(values=values):
                conditions = [self.condition(value, depth) for value in values]
                return _Part(lambda record: any(_truth(run(record)) for run in conditions), BOOLEAN)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                condition = self.condition(operand, depth)
                return _Part(lambda record: not _truth(condition(record)), BOOLEAN)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                number = self._of(operand, depth, (NUMBER,)).run
                return _Part(lambda record: _computed(operator.sub, 0, number(record)), NUMBER)
            case ast.BinOp(op=op) if type(op) in _ARITHMETIC:
                compute = _ARITHMETIC[type(op)]
                left, right = (self._of(side, depth, (NUMBER,)).run for side in (node.left, node.right))
                return _Part(lambda record: _computed(compute, left(record), right(record)), NUMBER)
            case ast.Compare():
                return self._comparison(node, depth)
            case ast.Call():
                return self._call(node, depth)
            case ast.Constant() | ast.Name(id="true" | "false" | "null"):
                constant = self._constant(node)
                return _Part(lambda _: constant, _kind(constant))
            case ast.Name() | ast.Attribute() | ast.Subscript():
                return self._read(self._path(node))
        raise self._wrong(
            "is not of this language", node, expected="and, or, not, comparisons, in, + - * / // %, paths"
        )

    def _comparison(self, node: ast.Compare, depth: int) -> _Part:
        """``a < b``, and ``a < b < c`` as ``a < b and b < c``."""
        sides = [node.left, *node.comparators]
        tests = [
            self._test(node, left, op, right, depth)
            for left, op, right in zip(sides[:-1], node.ops, sides[1:], strict=True)
        ]
        return _Part(tests[0] if len(tests) == 1 else lambda record: all(test(record) for test in tests), BOOLEAN)

    def _test(self, node: ast.Compare, left: ast.expr, op: ast.cmpop, right: ast.expr, depth: int) -> Run:
        if isinstance(op, ast.In | ast.NotIn):
            return self._membership(left, right, depth, negated=isinstance(op, ast.NotIn))
        if type(op) not in _COMPARISONS:
            raise self._wrong("is no comparison of this language", node, expected="== or !=, or has(path)")
        compare, kinds = _COMPARISONS[type(op)]
        first, second = self._of(left, depth, kinds), self._of(right, depth, kinds)
        if ANY not in (first.kind, second.kind) and first.kind != second.kind:
            raise self._wrong("compares different kinds", node, expected=f"{first.kind} on both sides")
        return lambda record: _compared(compare, kinds, first.run(record), second.run(record))

    def _membership(self, item: ast.expr, holder: ast.expr, depth: int, *, negated: bool) -> Run:
        if isinstance(holder, ast.List | ast.Tuple | ast.Set):
            values = [self._constant(element) for element in holder.elts]
            kinds = {_kind(value) for value in values}
            if len(kinds) != 1:
                raise self._wrong("is no list of this language", holder, expected="texts alone or numbers alone")
            (kind,) = kinds
            known = frozenset(values)
            inside = self._of(item, depth, (kind,)).run
            return lambda record: _among(inside(record), known, kind, negated=negated)
        part, whole = self._of(item, depth, _EQUAL).run, self._of(holder, depth, (TEXT, LIST)).run
        return lambda record: _held(part(record), whole(record), negated=negated)

    def _constant(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=bool() | int() | float() | str() as value):
                return value
            case ast.Name(id="true" | "false" as word):
                return word == "true"
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)) if not isinstance(
                value, bool
            ):
                return -value
            case ast.Constant(value=None) | ast.Name(id="null"):
                raise self._wrong("cannot be compared", node, expected="has(path), which is true of what is not null")
        raise self._wrong("is no constant", node, expected="a text in quotes, a number, true or false")

    def _path(self, node: ast.expr) -> Path:
        steps: list[Step] = []
        here = node
        while True:
            match here:
                case ast.Name(id=name):
                    steps.append(name)
                    return Path(self._source(node), tuple(reversed(steps)))
                case ast.Attribute(value=inner, attr=name):
                    steps.append(name)
                case ast.Subscript(value=inner, slice=ast.Constant(value=str() | int() as key)) if not isinstance(
                    key, bool
                ):
                    steps.append(key)
                case ast.Subscript(
                    value=inner, slice=ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as key))
                ):
                    steps.append(-key)
                case ast.Call(func=ast.Name(id="path"), args=[ast.Constant(value=str() as text)], keywords=[]) if (
                    here is node
                ):
                    return Path.parse(text)
                case _:
                    raise self._wrong("is no path", node, expected=_PATHS)
            here = inner

    def _read(self, path: Path) -> _Part:
        self.paths.append(path)
        return _Part(lambda record: None if (value := path.find(record)) is MISSING else value, ANY)

    def _call(self, node: ast.Call, depth: int) -> _Part:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in FUNCTIONS:
            method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            hint = f"write {FUNCTIONS[method]}" if method in FUNCTIONS else ""
            raise self._wrong("is no function of this language", node, expected=", ".join(FUNCTIONS), hint=hint)
        arguments = node.args
        if node.keywords or len(arguments) != FUNCTIONS[name].count(",") + 1:
            raise self._wrong("is not called so", node, expected=FUNCTIONS[name])
        if name == "path":
            return self._read(self._path(node))
        if name == "has":
            path = self._path(arguments[0])
            self.asked.append(path)
            present = self._read(path).run
            self.paths.pop()
            return _Part(lambda record: present(record) is not None, BOOLEAN)
        if name == "contains":
            return _Part(self._membership(arguments[1], arguments[0], depth, negated=False), BOOLEAN)
        if name == "matches":
            pattern = self._pattern(arguments[1])
            text = self._of(arguments[0], depth, (TEXT,)).run
            return _Part(
                lambda record: (found := _text(text(record))) is not None and _found_in(pattern, found), BOOLEAN
            )
        if name in {"startswith", "endswith"}:
            test = str.startswith if name == "startswith" else str.endswith
            whole, part = (self._of(argument, depth, (TEXT,)).run for argument in arguments)
            return _Part(lambda record: _tested(test, whole(record), part(record)), BOOLEAN)
        function, taken, kind = {
            "len": (_length, (TEXT, LIST), NUMBER),
            "lower": (_lower, (TEXT,), TEXT),
            "number": (_number, (NUMBER, TEXT), NUMBER),
        }[name]
        value = self._of(arguments[0], depth, taken).run
        return _Part(lambda record: None if (found := value(record)) is None else function(found), kind)

    def _pattern(self, node: ast.expr) -> Pattern:
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            raise self._wrong("is no pattern", node, expected="a regular expression in quotes")
        written = self._source(node)
        if "\\" in written and written[:1] not in "rR":
            # Python reads '\b' as a backspace.
            raise self._wrong("the pattern's backslashes are lost", node, expected=f"r{written}")
        try:
            # As in Python a backslash takes the meaning from a sign; to the engine these two are ends of words.
            return Pattern(_ESCAPED.sub(lambda found: found[0].replace("\\<", "<").replace("\\>", ">"), node.value))
        except ValueError as error:
            reason, place = _complaint(str(error))
            raise self._wrong(
                f"is not a valid pattern ({reason})",
                node,
                expected="a regular expression without look-around and back-references (docs/sources.md)",
                hint=place,
            ) from error

    def _source(self, node: ast.expr) -> str:
        return ast.get_source_segment(self._text, node) or ""

    def _wrong(self, what: str, node: ast.expr, *, expected: str, hint: str = "", kind: str = "") -> UsageError:
        got = _short(self._source(node)) + (f", {kind}" if kind else "")
        return UsageError(what, got=got, expected=expected, hint=hint)


def _complaint(said: str) -> tuple[str, str]:
    """What the engine says of a pattern: the reason, and the place, which it marks below a pattern of one line."""
    lines = said.splitlines()
    reason = lines[-1].removeprefix("error: ").strip()
    marked = len(lines) == 4 and "^" in lines[2]
    return reason, f"look at character {lines[2].index('^') - 3} of the pattern" if marked else ""


def _found_in(pattern: Pattern, text: str) -> bool:
    try:
        return pattern.found_in(text)
    except UnicodeEncodeError:  # an unpaired surrogate
        return pattern.found_in(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 80 else text[:79] + "…"


def _kind(value: Any) -> str:
    match value:
        case bool():
            return BOOLEAN
        case int() | float():
            return NUMBER
        case str():
            return TEXT
        case list():
            return LIST
    return type(value).__name__


def _truth(value: Any) -> bool:
    if value is None:
        return False
    if not isinstance(value, bool):
        raise Failed(f"{_kind(value)} is no condition")
    return value


def _compared(compare: Callable[[Any, Any], bool], kinds: tuple[str, ...], left: Any, right: Any) -> bool:
    if left is None or right is None:
        return False
    kind = _kind(left)
    if kind not in kinds or _kind(right) != kind:
        raise Failed(f"{kind} and {_kind(right)} are not compared so")
    return compare(left, right)


def _computed(compute: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    if left is None or right is None:
        return None
    if _kind(left) != NUMBER or _kind(right) != NUMBER:
        raise Failed("what is no number is not computed with")
    try:
        return compute(left, right)
    except ArithmeticError as error:
        raise Failed(str(error)) from error


def _among(value: Any, known: frozenset[Any], kind: str, *, negated: bool) -> bool:
    if value is None:
        return False
    if _kind(value) != kind:
        raise Failed(f"{_kind(value)} is not among values that are {kind}")
    return (value in known) != negated


def _held(part: Any, whole: Any, *, negated: bool) -> bool:
    if part is None or whole is None:
        return False
    kind = _kind(part)
    if isinstance(whole, str) and kind == TEXT:
        return (part in whole) != negated
    if not isinstance(whole, list) or kind not in _EQUAL:
        raise Failed(f"{kind} is not looked for in {_kind(whole)}")
    items = [item for item in whole if item is not None]
    alike = [item for item in items if _kind(item) == kind]
    if items and not alike:
        raise Failed(f"{kind} is not looked for in a list without one")
    return (part in alike) != negated


def _tested(test: Callable[[str, str], bool], whole: Any, part: Any) -> bool:
    first, second = _text(whole), _text(part)
    return first is not None and second is not None and test(first, second)


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise Failed(f"{_kind(value)} is no text")


def _lower(value: Any) -> str:
    text = _text(value)
    assert text is not None
    return text.lower()


def _length(value: Any) -> int:
    if isinstance(value, str | list):
        return len(value)
    raise Failed(f"{_kind(value)} has no length")


def _number(value: Any) -> int | float | None:
    """A number, also from a text, as which CSV has all; of an empty text none."""
    if _kind(value) == NUMBER:
        number: int | float = value
        return number
    text = (_text(value) or "").strip()
    if not text:
        return None
    found = _NUMBER.fullmatch(text)
    if not found or len(text) > 400:
        raise Failed("is no number")
    return float(text) if found.group(1) or found.group(2) else int(text)
