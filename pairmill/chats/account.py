"""What the rendering of a template may cost, and how it is refused."""

from typing import Any

MAX_WORK = 2_000_000
"""Units of work for one history: seconds at most."""
MAX_TEXT = 1 << 23
"""Characters of any text that a template makes."""
UNIT = 16
"""Characters that cost one."""
_MAX_BITS = 256

TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""Variables that a tokenizer's configuration has."""
CONFIG = "tokenizer_config.json"


class TemplateFailed(Exception):
    """A template cannot render a history; the message is what it said."""


class Refused(Exception):
    """A template did what none may do: what, what is expected, and what to write if that is known."""

    def __init__(self, what: str, expected: str, hint: str = "") -> None:
        super().__init__(what)
        self.what, self.expected, self.hint = what, expected, hint


class Account:
    """The work that a rendering may still do."""

    def __init__(self) -> None:
        self.left = 0

    def pay(self, units: int = 1) -> None:
        """Take units; raise :class:`Refused` if there are too few left."""
        self.left -= units
        if self.left < 0:
            raise Refused("the template does too much work for one history, or never ends", f"at most {MAX_WORK} steps")

    def read(self, value: Any) -> Any:
        """Pay for a value that an operation reads or makes; lists and objects with all that is in them."""
        if value.__class__ is str:
            self.left -= 1 + len(value) // UNIT
            if self.left < 0 or len(value) > MAX_TEXT:
                self.pay(0)
                raise too_long()
        elif isinstance(value, str):
            self.pay(1 + len(value) // UNIT)
            if len(value) > MAX_TEXT:
                raise too_long()
        elif isinstance(value, list | tuple | dict):
            self._walk(value)
        elif isinstance(value, range):
            self.pay(1 + len(value))
        elif isinstance(value, int) and value.bit_length() > _MAX_BITS:
            raise Refused("the template makes too large a number", f"at most {_MAX_BITS} bits")
        else:
            self.pay()
        return value

    def shallow(self, value: Any) -> Any:
        """Pay for a list by its length alone."""
        if isinstance(value, list | tuple | dict):
            self.pay(1 + len(value))
            return value
        return self.read(value)

    def _walk(self, value: Any, depth: int = 0) -> None:
        if depth > 100:
            raise Refused("the template makes too deep a list", "at most 100 levels")
        self.pay(1 + len(value))
        for item in (*value, *value.values()) if isinstance(value, dict) else value:
            if isinstance(item, str):
                self.pay(len(item) // UNIT)
            elif isinstance(item, list | tuple | dict):
                self._walk(item, depth + 1)


def lacking(name: str) -> Refused:
    """Make the refusal of a template that needs a variable."""
    if name in TOKENS:
        return Refused(
            f"the template needs {name}, and does not get it",
            f"{CONFIG}, which has it beside the template",
            f"write 'template: {CONFIG}', or template_variables: {{{name}: …}}",
        )
    return Refused(
        f"the template needs the variable {name}, and does not get it",
        "a value of it",
        f"write template_variables: {{{name}: …}}",
    )


def too_long() -> Refused:
    """Make the refusal of a template that makes too long a text."""
    return Refused("the template makes too long a text", f"at most {MAX_TEXT} characters")
