"""The part of CEL that kfp's compiler writes: comparisons, ``&& || !``, casts, ``parseJson`` and indexing."""

import ast
import json
import operator
import re
from collections.abc import Callable
from typing import Any

from tests.support.kubernetes.emulator.values import doubles, text

_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_CALLS: dict[str, Callable[[Any], Any]] = {
    "int": lambda value: float(int(value)),
    "double": float,
    "string": text,
    "parseJson": lambda value: doubles(json.loads(value)),
}
_WORDS = {"&&": " and ", "||": " or ", "!": " not "}


def select(value: Any, selector: str) -> Any:
    """What a ``parameterExpressionSelector`` takes of a value."""
    return _evaluate(selector, {"string_value": text(value)})


def holds(condition: str, parameters: dict[str, Any]) -> bool:
    """Whether the condition of a trigger policy lets a task run."""
    return bool(_evaluate(condition, {"inputs.parameter_values": parameters, "true": True, "false": False}))


def _evaluate(expression: str, names: dict[str, Any]) -> Any:
    # Quoted text is passed over, and so is the ! of !=.
    python = re.sub(r"""("[^"]*"|'[^']*')|(&&|\|\||!(?!=))""", lambda found: found[1] or _WORDS[found[2]], expression)

    def value(node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=constant):
                return doubles(constant)
            case ast.Name() | ast.Attribute():
                return names[ast.unparse(node)]
            case ast.Subscript(value=inner, slice=key):
                return value(inner)[value(key)]
            case ast.Call(func=ast.Name(id=name), args=[argument]):
                return _CALLS[name](value(argument))
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                return not value(inner)
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return -value(inner)
            case ast.BoolOp(op=ast.And(), values=parts):
                return all(value(part) for part in parts)
            case ast.BoolOp(values=parts):
                return any(value(part) for part in parts)
            case ast.Compare(left=left, ops=[compare], comparators=[right]):
                return _COMPARE[type(compare)](value(left), value(right))
        raise NotImplementedError(f"{expression}: the emulator does not know {ast.unparse(node)}")

    return value(ast.parse(python.strip(), mode="eval").body)
