"""``curate_config.yaml``: what the operations do, and for which tasks they do something else.

Each operation's settings are a dataclass in its own room; here they are put together, read and applied to tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Final, Literal, Self, TypeAlias, get_type_hints

from pairmill import storage
from pairmill.errors import UsageError, did_you_mean
from pairmill.formats.settings_file import FileSettings, Part, SettingsFile, to_json
from pairmill.stages.curate.decontaminate.settings import Decontaminate
from pairmill.stages.curate.exact_settings import ExactSettings
from pairmill.stages.curate.filters import FilterSettings
from pairmill.stages.curate.near.settings import NearSettings
from pairmill.stages.curate.rules import OPERATIONS, Mode
from pairmill.stages.curate.scores.classifiers import ClassifierSettings
from pairmill.stages.curate.scores.heuristics import HeuristicsSettings
from pairmill.stages.curate.scores.language import LanguageSettings
from pairmill.stages.curate.scores.perplexity import PerplexitySettings
from pairmill.stages.curate.scores.pii import PiiSettings

DEFAULT: Final = "curate_config.yaml"
"""The default file, in the working directory. It is optional: without it every setting has its default."""

HEAD: Final = """What curation does: duplicates, leaks of benchmarks and poor rows are found, shown and removed.
mode: drop removes rows, report only counts and shows them, off does not look. A rule's name is in decisions,
in the report and in the ledger. Which operation looks first: exact, near, decontaminate, heuristics, language,
perplexity, classifiers, filter, pii. The first that drops a row owns it.
Made by: pairmill curate settings"""

Prefer: TypeAlias = Literal["rank", "longest_response"]


@dataclass(frozen=True)
class Override:
    """What is different for tasks whose names begin with ``prefix``: settings of operations by name."""

    prefix: str
    changes: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Settings(FileSettings):
    """All of the file.

    Args:
        source_priority: beginnings of task names, best first; of duplicates the best stays.
        prefer: which duplicate stays: rank, or longest_response and then rank.
        same_condition_only: rows with different conditions are never duplicates.
        report_all: drop nothing, and let every operation look at every row.
        write_index: write index/ for the index= of a later run.
        exact: equal texts.
        near: near duplicates of pairs and documents.
        decontaminate: rows that leak a benchmark.
        heuristics: metrics of texts with bounds.
        language: language identification.
        perplexity: perplexity by a KenLM model.
        classifiers: items of docs/curation.md: quality, toxicity, domain.
        filter: bounds of any attribute.
        pii: e-mail addresses, card and phone numbers, IP addresses.
        overrides: items {prefix: web, near: report, heuristics: {…}}: the first whose prefix a task has.
    """

    FILE: ClassVar = DEFAULT
    HEAD: ClassVar = HEAD

    source_priority: list[str] = field(default_factory=list)
    prefer: Prefer = "rank"
    same_condition_only: bool = False
    report_all: bool = False
    write_index: bool = False
    exact: ExactSettings = field(default_factory=ExactSettings)
    near: NearSettings = field(default_factory=NearSettings)
    decontaminate: Decontaminate = field(default_factory=Decontaminate)
    heuristics: HeuristicsSettings = field(default_factory=HeuristicsSettings)
    language: LanguageSettings = field(default_factory=LanguageSettings)
    perplexity: PerplexitySettings = field(default_factory=PerplexitySettings)
    classifiers: list[ClassifierSettings] = field(default_factory=list)
    filter: FilterSettings = field(default_factory=FilterSettings)
    pii: PiiSettings = field(default_factory=PiiSettings)
    overrides: list[Override] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        names = [one.name for one in self.classifiers]
        for name in names:
            if names.count(name) > 1:
                raise UsageError("two classifiers have one name", where="classifiers", got=name)

    @classmethod
    def from_file(cls, file: SettingsFile) -> Self:
        """Read an open file; what overrides change is read onto what it says at the top."""
        plain = file.onto(cls(), leave=("overrides",))
        near = file.top.entries().get("near") if file.top is not None else None
        unsaid = near is not None and not near.is_scalar() and "mode" not in near.entries()
        if unsaid and plain.near.fields != "pair" and plain.near.max_similar is None:
            # One field alone does not prove that two rows say the same. A cap asks for rows that go.
            plain = replace(plain, near=replace(plain.near, mode="report"))
        return replace(plain, overrides=[_override(part, plain) for part in file.items("overrides")])

    def of(self, task: str) -> Settings:
        """The settings of a task: the first override whose prefix it has is applied."""
        return self.variants[self.variant_of(task)]

    def variant_of(self, task: str) -> int:
        """The number of the variant that a task has: 0, or 1 and on for overrides."""
        task = task.removeprefix("holdout/")
        return next((at for at, one in enumerate(self.overrides, 1) if task.startswith(one.prefix)), 0)

    @cached_property
    def variants(self) -> list[Settings]:
        """The settings without overrides, and those with each of them applied."""
        plain = replace(self, overrides=[])
        return [plain, *(replace(plain, **one.changes) for one in self.overrides)]

    def mode_of(self, operation: str) -> Mode:
        """The mode of an operation; of classifiers the strictest, of redaction ``report``."""
        if operation == "classifiers":
            modes = {one.mode for one in self.classifiers}
            return "drop" if "drop" in modes else "report" if "report" in modes else "off"
        mode = getattr(self, operation).mode
        return "report" if mode == "redact" else mode

    def said(self) -> dict[str, Any]:
        """JSON-like, for the manifest: of places only the last part, because a place is not content."""
        found: dict[str, Any] = to_json(self)
        found["overrides"] = [{"prefix": one.prefix, **to_json(one.changes)} for one in self.overrides]
        return {name: _without_places(value) for name, value in found.items()}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "variants"}


def _override(part: Part, plain: Settings) -> Override:
    entries = part.entries()
    if "prefix" not in entries:
        raise UsageError("the override has no prefix", where=part.where, expected="prefix: text")
    prefix = entries.pop("prefix").as_type(str)
    changes: dict[str, Any] = {}
    for key, one in entries.items():
        if key not in OPERATIONS:
            raise UsageError(
                f"unknown key {key!r}",
                where=one.where,
                expected=f"prefix, {', '.join(OPERATIONS)}",
                hint=did_you_mean(key, OPERATIONS),
            )
        changes[key] = _changed(getattr(plain, key), one)
    return Override(prefix, changes)


def _changed(base: Any, part: Part) -> Any:
    """The settings of an operation with what an override says: a mode alone, or a mapping."""
    if isinstance(base, list):
        return [replace(one, mode=part.as_type(Mode)) for one in base]
    if part.is_scalar():
        return replace(base, mode=part.as_type(get_type_hints(type(base))["mode"]))
    return part.onto(base, only=getattr(base, "PER_TASK", ("mode",)))


_PLACES: Final = ("uri", "model", "tokenizer")


def _without_places(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: storage.name_of(one) if key in _PLACES and isinstance(one, str) and one else _without_places(one)
            for key, one in value.items()
        }
    return [_without_places(one) for one in value] if isinstance(value, list) else value
