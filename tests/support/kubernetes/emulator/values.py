"""Values of parameters: every number is a double, and there are three ways to write one as text."""

import json
import re
from decimal import Decimal
from typing import Any

_WORDS = {**dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True)}
_WORDS.update(dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False))
_NAMES = {bool: "bool", float: "number", str: "string", list: "list", dict: "struct"}
_TAKES = {
    "NUMBER_INTEGER": float,
    "NUMBER_DOUBLE": float,
    "BOOLEAN": bool,
    "LIST": list,
    "STRUCT": dict,
    "TASK_FINAL_STATUS": dict,
}


def doubles(value: Any) -> Any:
    """The value as protobuf's Value holds and writes it: every number is a double, and keys are sorted."""
    if isinstance(value, dict):
        return {name: doubles(item) for name, item in sorted(value.items())}
    if isinstance(value, list):
        return [doubles(item) for item in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def dumps(value: Any, *, html: bool = False) -> str:
    """Compact JSON; ``html``: with ``<>&`` escaped, as Go's encoding/json does and protojson does not."""
    if isinstance(value, dict):
        items = (f"{dumps(name, html=html)}:{dumps(item, html=html)}" for name, item in value.items())
        return "{" + ",".join(items) + "}"
    if isinstance(value, list):
        return "[" + ",".join(dumps(item, html=html) for item in value) + "]"
    if isinstance(value, float):
        return _json_number(value)
    text = json.dumps(value, ensure_ascii=False)
    return re.sub("[<>&]", lambda found: f"\\u{ord(found[0]):04x}", text) if html else text


def _json_number(value: float) -> str:
    if value == 0 or 1e-6 <= abs(value) < 1e21:
        return _plain_number(value)
    return re.sub(r"e([+-])0+", r"e\1", repr(value))


def _plain_number(value: float) -> str:
    # -0.0 loses its sign on the way to the driver.
    return str(int(value)) if value.is_integer() else f"{Decimal(repr(value)):f}"


def _go_number(value: float) -> str:
    if value.is_integer() and abs(value) < 2**63:
        return str(int(value))
    number = Decimal(repr(value))
    if -4 <= number.adjusted() < 6:
        return f"{number:f}"
    digits = "".join(map(str, number.normalize().as_tuple().digits))
    tail = f".{digits[1:]}" if digits[1:] else ""
    return f"{'-' if value < 0 else ''}{digits[0]}{tail}e{number.adjusted():+03d}"


def driver_text(value: Any) -> str:
    """A value in the place of its placeholder, where the driver resolves it (pbValueToString)."""
    if value is None:
        return ""
    return _go_number(value) if isinstance(value, float) else text(value)


def text(value: Any) -> str:
    """A value in the place of its placeholder, where the launcher resolves it, and as input of a STRING."""
    if isinstance(value, str):
        return value
    return _plain_number(value) if isinstance(value, float) else dumps(value, html=True)


def converted(value: Any, kind: str) -> Any:
    """The value as input of a parameter of this type. Raises TypeError."""
    if kind == "STRING":
        return text(value)
    if not isinstance(value, _TAKES[kind]):
        raise TypeError(f"type mismatch: expect {kind}, got {_NAMES.get(type(value), 'null')}")
    return value


def parse(data: bytes, kind: str) -> Any:
    """What an output parameter's file holds, by type. Raises ValueError."""
    # Text that is not UTF-8 is found out later, when it is published.
    found = data.decode("utf-8", "surrogateescape")
    if kind == "STRING":
        return found
    if kind == "BOOLEAN":
        if found.strip() not in _WORDS:
            raise ValueError(f'parsing "{found}": invalid syntax')
        return _WORDS[found.strip()]
    if kind in {"NUMBER_INTEGER", "NUMBER_DOUBLE"}:
        if kind == "NUMBER_INTEGER" and not re.fullmatch(r"\s*[+-]?[0-9]+\s*", found):
            raise ValueError(f'parsing "{found}": invalid syntax')
        return float(found)
    value = doubles(json.loads(found))
    if not isinstance(value, _TAKES[kind]):
        raise ValueError("unexpected type")
    return value


def stored(metadata: dict[str, Any]) -> dict[str, Any]:
    """Metadata of an artifact as ML Metadata gives it back. Raises ValueError for null."""
    return {name: _stored(value) for name, value in metadata.items() if name != "_kfp_workspace"}


def _stored(value: Any) -> Any:
    if value is None:
        raise ValueError("unknown/unsupported value type *structpb.Value_NullValue")
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, float):
        return float(f"{value:.15g}")
    if isinstance(value, list):
        return {"list": value}
    return {"struct": value} if isinstance(value, dict) else value
