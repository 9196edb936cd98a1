"""Runs templates: jinja2's immutable sandbox, without a loader, and with an account of work.

A template is the program of a stranger. It reads no file, changes nothing, and whatever it does is paid from an
account: each step of a loop, call and filter costs a unit, and so do each 16 characters and each element that an
operation reads or makes. A template that overdraws the account is refused before memory or time run away.
"""

import functools
import json
import types
from collections.abc import Callable, ItemsView, Iterator, KeysView, ValuesView
from typing import Any, cast

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import do_indent, sync_do_join
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import missing
from jinja2.visitor import NodeTransformer

from pairmill.chats.account import MAX_TEXT, MAX_WORK, UNIT, Account, Refused, TemplateFailed, lacking, too_long

_CALL = 8
_ESCAPED = 12
"""The most characters that one of a text becomes in JSON, and where Python prints a list of texts."""
_MAX_INDENT = 16


class Compiled:
    """A template that compiled, and the account that pays for its renderings."""

    def __init__(self, text: str) -> None:
        self._account = Account()
        environment = _environment(self._account)
        try:
            tree = environment.parse(text)
            for kind in (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends):
                if (result := tree.find(kind)) is not None:
                    raise Refused(
                        f"a template reads no other file (line {result.lineno}: {kind.__name__.lower()})",
                        "a template that is whole in itself",
                    )
            constants = [node.data for node in tree.find_all(nodes.TemplateData)]
            constants += [node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str)]
            self.literals = tuple(dict.fromkeys(filter(_is_telling, constants)))
            """The texts that are written in the template and can hold a control token."""
            _paying_visitor().visit(tree)
            tree.set_environment(environment)
            code = environment.compile(tree)
            self._template = jinja2.Template.from_code(environment, code, dict(environment.globals))
        except jinja2.TemplateError as error:
            line = getattr(error, "lineno", None)
            where = f" (line {line})" if line else ""
            raise Refused(
                f"not a valid chat template: {error}{where}", "a jinja2 template as tokenizers have"
            ) from error
        except (SyntaxError, RecursionError, MemoryError) as error:
            raise Refused("the template is nested too deeply", "a template with fewer levels") from error

    def render(self, known: dict[str, Any]) -> str:
        """Render a template with what it knows by name."""
        self._account.left = MAX_WORK
        parts: list[str] = []
        size = 0
        try:
            for part in self._template.root_render_func(self._template.new_context(known)):
                parts.append(part)
                size += len(part)
                self._account.pay(1 + len(part) // UNIT)
                if size > MAX_TEXT:
                    raise too_long()
            return "".join(parts)
        except (Refused, TemplateFailed):
            raise
        except jinja2.exceptions.SecurityError as error:
            raise Refused(f"the template does what no template may do: {error}", "a chat template") from error
        except RecursionError as error:
            raise Refused("the template calls itself without end", "fewer calls within calls") from error
        except Exception as error:
            raise TemplateFailed(f"{type(error).__name__.removesuffix('Error')}: {error}"[:500]) from error


def _is_telling(text: str) -> bool:
    """Return whether a text can hold a control token: more than white space and letters."""
    return not (text.strip() or "a").isalnum()


def _texts_in(value: Any) -> Iterator[str]:
    below = [value]
    while below:
        item = below.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, list | dict):
            below += [*item, *item.values()] if isinstance(item, dict) else item


def _paying_visitor() -> Any:
    def paid(node: nodes.Expr, how: str) -> nodes.Filter:
        return nodes.Filter(node, how, [], [], None, None, lineno=node.lineno)

    def step(line: int) -> nodes.ExprStmt:
        return nodes.ExprStmt(paid(nodes.Const(None, lineno=line), _STEP), lineno=line)

    class Paying(NodeTransformer):
        """Makes loops, macros and blocks pay for each step, and operators for what they read and make."""

        def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802
            self.generic_visit(node)
            # Elements that a condition leaves out never get to the body; a recursive loop has other elements.
            node.iter = paid(cast(nodes.Expr, node.iter), _ITEMS)
            node.body.insert(0, step(node.lineno))
            return node

        def _body(self, node: Any) -> Any:
            self.generic_visit(node)
            node.body.insert(0, step(node.lineno))
            return node

        visit_Macro = visit_CallBlock = visit_Block = _body  # noqa: N815

        def visit_Compare(self, node: nodes.Compare) -> nodes.Compare:  # noqa: N802
            self.generic_visit(node)
            node.expr = paid(node.expr, _READ)
            for operand in node.ops:
                operand.expr = paid(operand.expr, _READ)
            return node

        def visit_Concat(self, node: nodes.Concat) -> nodes.Expr:  # noqa: N802
            self.generic_visit(node)
            return paid(nodes.Tuple(node.nodes, "load", lineno=node.lineno), _JOINED)

        def visit_Getitem(self, node: nodes.Getitem) -> nodes.Expr:  # noqa: N802
            self.generic_visit(node)
            return paid(node, _SHALLOW) if isinstance(node.arg, nodes.Slice) else node

        def visit_List(self, node: nodes.List) -> nodes.Expr:  # noqa: N802
            self.generic_visit(node)
            return paid(node, _READ)

        visit_Dict = visit_List  # noqa: N815

        def _call(self, node: Any) -> Any:
            self.generic_visit(node)
            if node.dyn_args is not None:  # f(*text) makes a list of its characters
                node.dyn_args = paid(node.dyn_args, _SPREAD)
            return node

        visit_Call = visit_Filter = visit_Test = _call  # noqa: N815

        def visit_Tuple(self, node: nodes.Tuple) -> nodes.Expr:  # noqa: N802
            self.generic_visit(node)
            return paid(node, _READ) if node.ctx == "load" else node

    return Paying()


# Names that no template can write.
_STEP, _ITEMS, _READ, _SHALLOW, _JOINED = "a step", "all items", "is read", "is sliced", "is joined"
_SPREAD = "is spread"
_FILTERS = {
    *("abs", "capitalize", "count", "d", "default", "first", "float", "int", "items", "last", "length", "list"),
    *("lower", "map", "reject", "rejectattr", "reverse", "select", "selectattr", "title", "trim", "upper"),
}
_COMPARING_FILTERS = ("dictsort", "max", "min", "sort", "unique")
_TAKING_FILTERS = ("map", "max", "min", "reject", "rejectattr", "select", "selectattr", "sort", "title", "unique")
_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_OF_LISTS = frozenset({"count", "index"})
_OF_OBJECTS = frozenset(dir(dict))
_METHODS: dict[type[Any], frozenset[str]] = {
    str: frozenset(
        {
            *("capitalize", "casefold", "count", "endswith", "find", "index", "isalnum", "isalpha", "isdecimal"),
            *("isdigit", "islower", "isnumeric", "isspace", "istitle", "isupper", "join", "lower", "lstrip"),
            *("partition", "removeprefix", "removesuffix", "replace", "rfind", "rindex", "rpartition", "rsplit"),
            *("rstrip", "split", "splitlines", "startswith", "strip", "swapcase", "title", "upper"),
        }
    ),
    dict: frozenset({"get", "items", "keys", "values"}),
    list: _OF_LISTS,
    tuple: _OF_LISTS,
}


def _environment(account: Account) -> jinja2.Environment:
    """Return an environment whose every operation is paid from an account."""

    class Generation(Extension):
        """``{% generation %}``, with which templates mark what the assistant says."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> list[nodes.Node]:
            next(parser.stream)
            body: list[nodes.Node] = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return body

    class Environment(ImmutableSandboxedEnvironment):
        intercepted_binops = frozenset({"+", "*", "**", "%"})

        def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
            for kind, methods in _METHODS.items():
                if isinstance(obj, kind):
                    return attr in methods
            return not isinstance(obj, bytes | bytearray) and super().is_safe_attribute(obj, attr, value)

        def wrap_str_format(self, value: Any) -> None:
            return None  # format is not among the methods

        def getattr(self, obj: Any, attribute: str) -> Any:
            # What is not a method of objects is a key of this one, as it would be after an exception.
            if obj.__class__ is dict and attribute not in _OF_OBJECTS:
                return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
            return super().getattr(obj, attribute)

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            if operator == "+" and left.__class__ is str and right.__class__ is str:
                # Most operations of most templates: what is paid is the same, at a fifth of the time.
                size = len(left) + len(right)
                account.pay(3 + size // (UNIT // 2))
                if size > MAX_TEXT:
                    raise too_long()
                return left + right
            account.shallow(left)
            account.shallow(right)
            if operator == "%" and isinstance(left, str):
                raise Refused("% on a text is not available in chat templates", "~ between texts")
            if operator == "**" and not (_small(left) and _small(right)):
                raise Refused("the template makes too large a number", "numbers below 1000 beside **")
            if operator == "*":
                for item, times in ((left, right), (right, left)):
                    if isinstance(item, str) and isinstance(times, int):
                        _may_make(len(item) * max(times, 0))
                    elif isinstance(item, list | tuple) and isinstance(times, int):
                        account.pay(len(item) * max(times, 0))
            return account.shallow(super().call_binop(context, operator, left, right))

        def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
            account.pay(_CALL)
            if isinstance(__obj, jinja2.Undefined) and __obj._undefined_name == "strftime_now":
                raise Refused(
                    "the template asks for the present time, and rows have to be the same on any day",
                    "a date that is written in the template",
                )
            owner, name = getattr(__obj, "__self__", None), getattr(__obj, "__name__", "")
            if isinstance(owner, str | list | tuple | dict):
                account.read(owner)
            if isinstance(owner, str):
                _refuse_growth(name, owner, args)
            # A macro gets what exists already; anything else may look at all of it.
            pay = account.shallow if isinstance(__obj, jinja2.runtime.Macro) else account.read
            for item in (*args, *kwargs.values()):
                pay(item)
            result = super().call(__context, __obj, *args, **kwargs)
            # A view of an object would be printed without being paid for.
            return account.read(list(result) if isinstance(result, ItemsView | KeysView | ValuesView) else result)

        def getitem(self, obj: Any, argument: Any) -> Any:
            if isinstance(argument, tuple):
                account.read(argument)
            return super().getitem(obj, argument)

    def _may_make(length: int) -> None:
        if length > MAX_TEXT:
            raise too_long()
        account.pay(length // UNIT)

    def _refuse_growth(name: str, owner: str, args: tuple[Any, ...]) -> None:
        if name == "replace" and len(args) >= 2 and isinstance(args[0], str) and isinstance(args[1], str):
            _may_make(len(owner) + (owner.count(args[0])) * len(args[1]))
        elif name == "join" and args:
            texts = elements(args[0])
            _may_make(sum(len(item) for item in texts if isinstance(item, str)) + len(owner) * len(texts))
        elif name in ("split", "rsplit", "splitlines"):
            account.pay(_parts_of(name, owner, args))

    def elements(value: Any) -> list[Any]:
        """Return what a value has, as a list; each element is paid for before it is made."""
        if hasattr(value, "__len__"):
            account.pay(len(value))
            return list(value)
        result = []
        for item in value:
            account.pay()
            result.append(item)
        return result

    def spread(value: Any) -> Any:
        return elements(value) if isinstance(value, str) else value

    def printable(value: Any) -> Any:
        account.read(value)
        if value.__class__ is str:
            return value
        if not isinstance(value, str) and _ESCAPED * sum(map(len, _texts_in(value))) > MAX_TEXT:
            raise too_long()
        below = [value]
        while below:
            item = below.pop()
            if isinstance(item, jinja2.Undefined) and item._undefined_obj is missing and item._undefined_name:
                raise lacking(item._undefined_name)
            if isinstance(item, list | tuple | dict):
                below += [*item, *item.values()] if isinstance(item, dict) else item
            elif not isinstance(item, str | int | float | range | jinja2.Undefined | None):
                # What Python prints of other objects is an address in memory, or has no end.
                raise TypeError(f"an object of type {type(item).__name__} cannot be printed")
        return value

    def joined(values: tuple[Any, ...]) -> str:
        """Return what ``~`` makes of values."""
        texts = [item if item.__class__ is str else str(printable(item)) for item in values]
        size = sum(map(len, texts))
        account.pay(1 + 2 * len(texts) + size // (UNIT // 2))
        if size > MAX_TEXT:
            raise too_long()
        return "".join(texts)

    def paying(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def paid(*args: Any, **kwargs: Any) -> Any:
            for item in (*args, *kwargs.values()):
                account.shallow(item)
            result = function(*args, **kwargs)
            return elements(result) if isinstance(result, types.GeneratorType) else account.shallow(result)

        return paid

    def taking(function: Callable[..., Any]) -> Callable[..., Any]:
        """Charge for the characters of a text before a filter makes much of each."""

        @functools.wraps(function)
        def paid(*args: Any, **kwargs: Any) -> Any:
            # What most filters take first is the environment or the context.
            for item in args[:2]:
                if isinstance(item, str):
                    account.pay(len(item))
            return function(*args, **kwargs)

        return paid

    def comparing(function: Any) -> Callable[..., Any]:
        @functools.wraps(function)
        def paid(*args: Any, **kwargs: Any) -> Any:
            for item in (*args, *kwargs.values()):
                account.read(item)
            result = function(*args, **kwargs)
            return elements(result) if isinstance(result, types.GeneratorType) else result

        return paid

    def to_json(
        value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
    ) -> str:
        if isinstance(indent, int) and indent > _MAX_INDENT:
            raise Refused("the template indents too far", f"at most {_MAX_INDENT}")
        account.read(value)
        if _ESCAPED * sum(map(len, _texts_in(value))) > 4 * MAX_TEXT:
            raise too_long()
        encoder = json.JSONEncoder(
            ensure_ascii=ensure_ascii, indent=indent, separators=separators and tuple(separators), sort_keys=sort_keys
        )
        return str(account.read(encoder.encode(value) if indent is None else concat(encoder.iterencode(value))))

    def indent(text: str, width: Any = 4, first: bool = False, blank: bool = False) -> str:
        _may_make(len(text) + (text.count("\n") + 1) * (len(width) if isinstance(width, str) else max(int(width), 0)))
        return do_indent(text, width, first, blank)

    @jinja2.pass_eval_context
    def join(eval_ctx: Any, value: Any, d: str = "", attribute: Any = None) -> str:
        items = elements(value)
        for item in items:
            printable(item)
        _may_make(len(str(d)) * len(items))
        return str(sync_do_join(eval_ctx, items, d, attribute))

    def replace(text: Any, old: Any, new: Any, count: Any = None) -> str:
        text, old, new = str(printable(text)), str(printable(old)), str(printable(new))
        _refuse_growth("replace", text, (old, new))
        return str(text.replace(old, new, -1 if count is None else int(count)))

    def items_of(value: Any) -> Any:
        if isinstance(value, types.GeneratorType):
            value = elements(value)
        if hasattr(value, "__len__"):
            account.pay(len(value) // UNIT if isinstance(value, str) else len(value))
        return value

    def concat(parts: Any) -> str:
        made = []
        size = 0
        for part in parts:
            made.append(part)
            size += len(part)
            account.pay(1 + len(part) // UNIT)
            if size > MAX_TEXT:
                raise too_long()
        return "".join(made)

    @jinja2.pass_context
    def finalize(context: Any, value: Any) -> Any:  # with a context, so that nothing is computed while compiling
        return printable(value)

    def raise_exception(message: Any = "") -> None:
        raise TemplateFailed(str(message)[:500])

    environment = Environment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols], optimized=False, finalize=finalize
    )
    known = environment.filters
    environment.filters = {name: paying(known[name]) for name in _FILTERS}
    environment.filters |= {name: comparing(known[name]) for name in _COMPARING_FILTERS}
    environment.filters |= {name: taking(environment.filters[name]) for name in _TAKING_FILTERS}
    environment.filters["list"] = elements
    environment.filters |= {"tojson": to_json, "join": join, "replace": replace, "indent": indent}
    environment.filters |= dict.fromkeys(("string", "safe"), lambda value: str(printable(value)))
    environment.filters |= {_STEP: lambda value: account.pay(), _ITEMS: items_of, _READ: account.read}
    environment.filters |= {_SHALLOW: account.shallow, _JOINED: joined, _SPREAD: spread}
    environment.tests = {name: comparing(test) for name, test in environment.tests.items()}
    environment.globals = {
        name: environment.globals[name] for name in ("range", "dict", "namespace", "joiner", "cycler")
    }
    environment.globals["raise_exception"] = raise_exception
    environment.concat = concat  # type: ignore[method-assign]
    return environment


def _parts_of(name: str, text: str, args: tuple[Any, ...]) -> int:
    """Return the most parts that a text is split into."""
    if name == "splitlines":
        return 1 + sum(map(text.count, _LINE_ENDS))
    by = args[0] if args else None
    parts = 1 + (text.count(by) if isinstance(by, str) and by else len(text) // 2)
    most = args[1] if len(args) > 1 else -1
    return min(parts, most + 1) if isinstance(most, int) and most >= 0 else parts


def _small(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) < 1000
