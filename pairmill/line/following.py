"""What comes after a finished result: the command that the table of the line says, with its inputs filled in."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.engine.listing import folder_of, read_head
from pairmill.engine.manifest import InputRef
from pairmill.line.table import FILTERS, LINE, Task
from pairmill.log import event

_KEPT: Final = ("profile", "policy", "policy_on")
"""Options that a line has throughout, up to the training."""


def next_command(
    root: str, stage: str, output: str, inputs: Sequence[InputRef], given: Mapping[str, str] | None = None
) -> str:
    """Return the command that goes on with a result; empty if nothing of the line reads it.

    Args:
        stage: that has finished.
        output: what later stages read of it.
        given: its options by name, of which some are those of the next stage too.
    """
    task = _reader_of(stage)
    if task is None:
        return ""
    options: dict[str, str] = {}
    for option, source in task.reads.items():
        folders = filter(None, map(folder_of, inputs))
        read = [f"{root}/{folder}" for folder in folders if _stands_for(folder.partition("/")[0], source)]
        value = output if _stands_for(stage, source) else ",".join(dict.fromkeys(read))
        options |= {option: value} if value else {}
    options["root"] = root
    names = () if task.only_with else (*_KEPT, *(("sources",) if task.stage == "clean" else ()))
    options |= {name: given[name] for name in names if given and given.get(name)}
    return " ".join(["pairmill", task.stage, *(f"{name}={shlex.quote(value)}" for name, value in options.items())])


def show(
    stage: str, parameters: Mapping[str, object], metadata: Mapping[str, object], given: Mapping[str, str]
) -> None:
    """Log the command that goes on with a stage that has ended; nothing without a root, or if nothing follows.

    Args:
        parameters: its output parameters.
        metadata: of its manifest artifact.
        given: its options by name.
    """
    folder = str(metadata.get("data", ""))
    if not given.get("root") or not folder or not manifests.exists(folder):
        return
    head = read_head(folder)
    root, output = storage.normalise(given["root"], "root"), str(parameters["output"])
    command = "" if head.is_held_out else next_command(root, stage, output, head.inputs, given)
    if command:
        event(f"next: {command}", stage=stage, next=command)


def _reader_of(stage: str) -> Task | None:
    """Return the first task after a stage that reads its result and does something without settings of its own."""
    names = [task.stage for task in LINE]
    later = LINE[names.index(stage) + 1 :] if stage in names else ()
    tasks = (task for task in later if not task.idle_without and task.stage != stage)
    return next((task for task in tasks if any(_stands_for(stage, source) for source in task.reads.values())), None)


def _stands_for(stage: str, source: str) -> bool:
    """Return whether a stage's result is read in place of that of a task: it is the task, or that was left out."""
    if stage == source:
        return True
    return source in FILTERS and any(_stands_for(stage, task.reads["rows"]) for task in LINE if task.stage == source)
