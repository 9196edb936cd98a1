"""Options of the clean stage."""

import dataclasses
from dataclasses import dataclass
from typing import Any, get_type_hints

from pairmill.engine.options import ReplaceableConfig, default_of, option
from pairmill.errors import UsageError
from pairmill.interface import cli
from pairmill.sources.datasets import SOURCES
from pairmill.stages.clean.holdout import Holdout

REJECT = "reject"
"""The value of ``on_long_record`` with which a record that is too long is put aside."""


@dataclass(kw_only=True)
class CleanConfig(ReplaceableConfig):
    """Turn raw instruction data sets into rows {condition, instruction, response}."""

    result = "rows"

    raw: str = option(
        "",
        help="what fetch printed, or a folder or URI that holds one folder of raw files per source; empty where every "
        "source is a YAML file with files:",
        changes_bytes=False,
        takes="fetched",
        unless=("sources", "rows", "tokenized"),
    )
    sources: list[str] = option(
        [],
        help="sources to clean, by name or as YAML files that describe one; all = every known one that is in raw; "
        "empty = all, or none with rows= or tokenized=",
    )
    rows: list[str] = option(
        [],
        help="folders or URIs of finished rows, joined by commas: passed on beside what is cleaned, and not copied",
        changes_bytes=False,
    )
    source_options: list[str] = option(
        [], help="options of single sources, as <source>.<option>=<value>; listed at the end of --help"
    )
    holdout: str = option(
        "",
        help="rows for evaluation, kept apart from training: a fraction of the questions (0.01) or rows of each task "
        "(500); empty = none",
        changes_bytes=False,  # without it manifests are those of before; with it the plan names it
    )
    max_reject_fraction: float = option(
        0.001,
        help="largest fraction of malformed records in a source; they go to rejects/; more fail it (data_io: any)",
        at_least=0,
        at_most=1,
    )

    on_long_record: str = option(
        "refuse",
        help="what becomes of a record of more than max_record_bytes: refuse fails the stage, reject puts it aside in "
        "rejects/ and counts it",
        changes_bytes=False,  # with reject it is in the keys of shards, and the plan names it
        choices=("refuse", REJECT),
    )
    limit: int = option(
        0,
        help="read only the first this many records of each source; 0 = all, or all of the extract that fetch made",
        changes_bytes=False,
        at_least=0,
    )
    turns: str = option(
        "",
        help="of chats: all, last or first, the answers that make rows, whatever YAML files say; empty = what they say",
        changes_bytes=False,  # it is in the keys of the shards that it concerns
        choices=("all", "last", "first"),
    )

    @property
    def given(self) -> str:
        return super().given or ("" if self.sources else "rows")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.sources and not self.rows and not self.tokenized:
            self.sources = ["all"]
        if self.holdout and not self.sources:
            raise UsageError(
                "is of no use: nothing is cleaned, so nothing can be held out",
                where="holdout",
                got=self.holdout,
                hint="rows that were held out when they were cleaned stay apart; pairmill sample held_out=true draws "
                "them from the tokenized folder",
            )
        self.held_out()
        self.source_options = sorted(self.source_options)
        self.options_of("")

    def held_out(self) -> Holdout | None:
        """Return how much of each task is held out. Raises UsageError if ``holdout`` does not say it."""

        return Holdout.parse(self.holdout)

    def options_of(self, source: str) -> dict[str, str]:
        """Return the options given for one source.

        Raises:
            UsageError: an item is not ``<source>.<option>=<value>`` of a source that has such an option.
        """

        result: dict[str, dict[str, str]] = {}
        for item in self.source_options:
            path, separator, value = item.partition("=")
            name, dot, key = path.partition(".")
            if not separator or not dot:
                raise UsageError(
                    "not an option of a source", where="source_options", got=item, expected="<source>.<option>=<value>"
                )
            if name not in SOURCES:
                known = ", ".join(name for name, each in SOURCES.items() if dataclasses.fields(each.options))
                raise UsageError("unknown source", where="source_options", got=name, expected=known)
            if key in result.setdefault(name, {}):
                raise UsageError("given twice", where="source_options", got=path)
            result[name][key] = value
        for name, values in result.items():
            build_options(SOURCES[name].options, name, values)
        return result.get(source, {})

    @classmethod
    def details(cls) -> str:
        """Return what ``--help`` says beside the options: those of the sources."""
        lines = ["options of sources (source_options=<source>.<option>=<value>,…):"]
        for name, kind, default, text in source_options():
            lines += [f"  {name}  ({kind}; default: {default})", f"      {text}"]
        return "\n".join(lines)


def build_options(kind: type[Any], source: str, values: dict[str, str]) -> Any:
    """Return a source's options from texts, checked by type. Raises UsageError naming ``<source>.<option>``."""
    try:
        return cli.build(kind, values)
    except UsageError as error:
        raise error.moved(f"source_options: {source}.{error.where}") from error


def source_options() -> list[tuple[str, str, str, str]]:
    """List (``<source>.<option>``, type, default, meaning) of every option of every source."""

    return [
        (
            f"{name}.{item.name}",
            cli.type_name(get_type_hints(source.options)[item.name]),
            str(default_of(item)) or "empty",
            item.metadata["help"],
        )
        for name, source in sorted(SOURCES.items())
        for item in dataclasses.fields(source.options)
    ]
