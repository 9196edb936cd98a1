"""The words of rules in settings files: which tasks a source, or what is different for some tasks, is about."""

from __future__ import annotations

from dataclasses import dataclass

from pairmill.errors import UsageError
from pairmill.fields import Checked, setting
from pairmill.rules.match import Selector, compile_pattern, expand


@dataclass(frozen=True, kw_only=True)
class TaskNames(Checked, at_most_one=("prefixes", "match", "re")):
    """The keys that say which tasks are meant."""

    prefixes: list[str] = setting([], help="the tasks whose names begin with one of these")
    match: str | list[str] = setting([], help="or a glob of names, or several: *, ?, [abc], {a,b}", parse=expand)
    re: str = setting("", help="or a regular expression of whole names", parse=compile_pattern)
    not_: str | list[str] = setting([], help="a glob, or several, of tasks that are not meant", parse=expand)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.not_ and self.selector is None:
            raise UsageError("nothing says which tasks are meant", where="not", expected="match: glob beside it")

    @property
    def selector(self) -> Selector | None:
        """The tasks that are meant; None if nothing is said."""
        if not (self.prefixes or self.match or self.re):
            return None
        globs, without = ((item,) if isinstance(item, str) else tuple(item) for item in (self.match, self.not_))
        return Selector(tuple(self.prefixes), globs, self.re, without)
