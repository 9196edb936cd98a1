"""Options of a stage: dataclass fields with a help text, from which command lines, Kubeflow forms and docs are made."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, Self, TypeVar, Unpack

from pairmill.engine.links import LinkRule
from pairmill.errors import UsageError
from pairmill.fields import Checked, Checks, checked_field, default_value

Profile = Literal["pairmill", "data_io"]

RECORD_BYTES = 64 << 20
"""Default of ``max_record_bytes``: the longest record in bytes."""
EXPANSION = 1000
"""Default of ``max_expansion``: the most bytes of records for each byte of their file."""


def option(
    default: Any = dataclasses.MISSING,
    *,
    help: str,  # noqa: A002
    changes_bytes: bool = True,
    takes: str = "",
    unless: Sequence[str] = (),
    **checks: Unpack[Checks],
) -> Any:
    """Make a field of a stage's options.

    Args:
        default: the default; without one the option is required.
        help: one line for ``--help``, the Kubeflow form and the README, with the unit.
        changes_bytes: whether the option is part of the fingerprint. Places (URIs) and the number of workers are
            not: inputs enter the fingerprint by content.
        takes: the kind of result that this input is (:data:`pairmill.engine.candidates.MAKERS`); empty = it is none
            that may be left out.
        unless: options with which it is not needed.
        checks: what is taken.
    """
    metadata = {"help": help, "changes_bytes": changes_bytes, "takes": takes, "unless": unless, "checks": checks}
    return checked_field(default, metadata)


def program_name(stage: str) -> str:
    """Return what follows ``pairmill`` to run a stage; compare and search alone also run what they are told of."""
    return f"stage {stage}" if stage in {"compare", "search"} else stage


def default_of(item: dataclasses.Field[Any]) -> Any:
    """Return an option's default as text, lists joined by commas; ``dataclasses.MISSING`` if it is required."""
    value = default_value(item)
    return ",".join(map(list_item, value)) if isinstance(value, list) else value


def list_item(text: str) -> str:
    """Return a text as an item of a list option, with its commas escaped."""
    return text.replace(",", "\\,")


def arguments_of(config: Any) -> list[str]:
    """Return the options of ``config`` as a command line."""

    def text(value: Any) -> str:
        if isinstance(value, list):
            return ",".join(map(list_item, value))
        return str(value).lower() if isinstance(value, bool) else str(value)

    return [f"{item.name}={text(getattr(config, item.name))}" for item in dataclasses.fields(config)]


def byte_options(config: Any) -> dict[str, Any]:
    """Return the options of ``config`` that change bytes, by name."""
    fields = dataclasses.fields(config)
    return {item.name: getattr(config, item.name) for item in fields if item.metadata.get("changes_bytes", True)}


@dataclass(frozen=True)
class WorkerSlice:
    """One machine's share of a round's shards: share ``number`` of ``count``, counted from 1."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``number/count``, or ``auto`` and ``auto/count``: what the array job says in which this process runs.

        Raises:
            UsageError: it is anything else, or no array job started this process, or it has another size.
        """
        match = re.fullmatch("(auto|[0-9]{1,6})(?:/([0-9]{1,6}))?", text)
        if match is not None and match[1] == "auto":
            return cls(*_place_in_array(int(match[2] or 0)))
        if match is None or match[2] is None or not 1 <= int(match[1]) <= int(match[2]):
            expected = "number/count, as 1/7 to 7/7; auto or auto/7 in a task of an array job"
            raise UsageError("not a valid share", where="share", got=text, expected=expected)
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    @classmethod
    def all(cls, count: int) -> list[str]:
        """Return the texts of all ``count`` shares; an empty list for one, which needs no share."""
        return [f"{number}/{count}" for number in range(1, count + 1)] if count > 1 else []


_ARRAYS = ("JOB_COMPLETION_INDEX", "SLURM_ARRAY_TASK_ID")
"""What an Indexed Job of Kubernetes and an array of Slurm call the index of a task; a pod does not see how many."""


def _place_in_array(count: int) -> tuple[int, int]:
    """Return number and count of this process among the tasks of its array job.

    Args:
        count: shares, of which the task with index 0 has the first; 0 = as many as Slurm says that the array has tasks.
    """
    index = next((int(os.environ[name]) for name in _ARRAYS if os.environ.get(name, "").isdecimal()), None)
    if index is None:
        raise UsageError(
            "no array job started this process",
            where="share=auto",
            expected=f"the variable {' or '.join(_ARRAYS)}",
            hint="write share=1/7, or start it as docs/slurm.md and manifests/examples/job do",
        )
    first, step = 0, 1
    if not count:
        names = ("COUNT", "MIN", "MAX", "STEP")
        texts = [os.environ.get(f"SLURM_ARRAY_TASK_{name}", "") for name in names]
        if not all(map(str.isdecimal, texts)):
            raise UsageError(
                "the array does not say how many tasks it has",
                where="share=auto",
                expected=f"share=auto/<completions of the Job>, or Slurm's {', SLURM_ARRAY_TASK_'.join(names[:1])}",
            )
        count, first, last, step = map(int, texts)
        if last - first != (count - 1) * step:
            raise UsageError(
                "the indices of the array have gaps",
                where="share=auto",
                got=f"{count} tasks with indices {first} to {last}",
                expected=f"as --array=0-{count - 1}",
                hint=f"write share=auto/<shares> for some tasks of a larger array, or --array=0-{count - 1}: finished "
                "shards are reused, whatever the size",
            )
    number = (index - first) // step + 1
    if number > count:
        raise UsageError(
            "the array has more tasks than shares",
            where=f"share=auto/{count}",
            got=f"the task with index {index}",
            expected=f"0 to {count - 1}",
            hint=f"write --array=0-{count - 1} (of a Job completions: {count}), or share=auto/{index + 1} and more",
        )
    return number, count


ALARMS = ("vanished", "unmatched_task", "unmatched_rule", "two_rules", "unmatched_source", "links")
"""The kinds of alarms (:mod:`pairmill.engine.vanished`)."""


def fail_on_option() -> Any:
    """Make the option of the alarms that fail a run."""
    return option(
        [],
        help=f"alarms that fail the stage before a result is committed, of {', '.join(ALARMS)}; empty = they are "
        "warnings",
        changes_bytes=False,
        choices=ALARMS,
    )


def links_option() -> Any:
    """Make the option of symbolic links."""
    return option(
        "skip",
        help="symbolic links in folders that are listed: skip leaves them out with a warning, follow reads what they "
        "lead to, refuse fails the stage",
        changes_bytes=False,  # what is read is in the inputs
    )


def tasks_option() -> Any:
    """Make the option of the tasks that are taken of tokenized folders."""
    return option(
        "",
        help="which tasks of tokenized_path are taken and what rules call them, as a YAML file; empty = all, by "
        "their own names",
        changes_bytes=False,  # which tasks there are is in the inputs
    )


def policy_option() -> Any:
    """Make the option of the policy that says what may be read."""
    return option(
        "",
        help="policy.yaml: which sources, files and licences are allowed, denied, held or for evaluation only "
        "(docs/policy.md); empty = all are allowed",
        changes_bytes=False,  # its decisions are among the inputs
    )


PolicyRule = Literal["refuse", "leave_out"]


def policy_on_option() -> Any:
    """Make the option of what a policy does with what it does not allow."""
    return option(
        "refuse",
        help="what becomes of data that policy= does not allow: refuse fails the stage, leave_out goes on without it",
        changes_bytes=False,
    )


class RunOptions(Protocol):
    """The options of every stage that the runner itself reads; a stage's options are a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]
    root: str
    workers: int
    verify: bool
    fail_on: list[str]
    links: LinkRule


@dataclass(kw_only=True)
class RunConfig(Checked):
    """Options that every sharded stage has."""

    root: str = option(help="project folder or URI; results go to <root>/<stage>/<fingerprint>", changes_bytes=False)
    workers: int = option(
        0, help="processes on this machine; 0 = one per available core", changes_bytes=False, at_least=0
    )
    share: str = option(
        "",
        help="run this share of the shards, as in 2/7, together with the other shares, and do not finish; auto = the "
        "place in the array job (Slurm), auto/7 of one that does not say its size (Kubernetes); empty = run all and "
        "finish",
        changes_bytes=False,
        parse=WorkerSlice.parse,
    )
    finish: bool = option(
        False,
        help="with share=: finish once the shards of all shares are done; one share has it, of share=auto the first",
        changes_bytes=False,
        needs="share",
    )
    verify: bool = option(
        False,
        help="read earlier results and inputs in full instead of trusting their sizes; damaged results are redone",
        changes_bytes=False,
    )
    fail_on: list[str] = fail_on_option()
    links: LinkRule = links_option()

    result: ClassVar[str] = ""
    """The option by which a run can give the stage's result: rows, tokenizer or tokenized; empty = by none."""

    @property
    def given(self) -> str:
        """The option that gives the result of this stage or of a later one, so that there is nothing to do."""
        return ""

    @property
    def is_off(self) -> bool:
        """Whether profile or settings leave the stage nothing to do."""
        return False

    def __getstate__(self) -> dict[str, Any]:
        """Return the options alone: what was read from files once is read again by another process."""
        return {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}


@dataclass(kw_only=True)
class StageConfig(RunConfig):
    """Options of a stage that can also write the reference's bytes."""

    profile: Profile = option("pairmill", help="pairmill, or data_io for the reference's bytes, defects included")
    max_record_bytes: int = option(
        RECORD_BYTES,
        help="longest record that is read, in bytes; a longer one fails the stage, because memory use depends on it",
        changes_bytes=False,
        at_least=1,
    )
    max_expansion: int = option(
        EXPANSION,
        help="most bytes of records for each byte of their file, beyond 256 MiB; more fails the stage: a file of a "
        "kilobyte can hold gigabytes",
        changes_bytes=False,
        at_least=1,
    )
    policy: str = policy_option()
    policy_on: PolicyRule = policy_on_option()


@dataclass(kw_only=True)
class ReplaceableConfig(StageConfig):
    """Options of a stage before sample, whose result a run may be given."""

    tokenized: str = option(
        "",
        help="tokenized folder that exists, in place of all that is before sample: tokenize passes it on, and no "
        "stage has anything to do",
        changes_bytes=False,
    )

    @property
    def given(self) -> str:
        return "tokenized" if self.tokenized else ""


@dataclass(kw_only=True)
class RowConfig(ReplaceableConfig):
    """Options of a stage that chooses rows."""

    result = "rows"

    rows: list[str] = option(
        [],
        help="folders or URIs of rows (.jsonl, .parquet), joined by commas",
        changes_bytes=False,
        takes="rows",
        unless=("tokenized",),
    )


C = TypeVar("C", bound=RunConfig)


def too_many(runs: int, most: int, option: str) -> UsageError:
    """Return the refusal of more runs than a pipeline has room for.

    Args:
        runs: how many are asked for.
        most: how many there may be.
        option: that says how many.
    """
    return UsageError(
        "more runs than the workflow object of Kubeflow has room for",
        where=option,
        got=f"{runs} runs",
        expected=f"{most} or fewer",
        hint="max_runs=0 takes any number, but Kubeflow then shows no task of the run to its end",
    )
