"""The command ``pairmill``: which program each name starts, and the help that lists them by purpose.

A program is a module with ``main(arguments) -> exit code``, imported only when its name is used.
"""

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pairmill


class Program(NamedTuple):
    """A program.

    Args:
        module: has ``main``.
        summary: what it does, in one line.
        extra: the optional dependencies of the wheel that it needs; empty = none.
    """

    module: str
    summary: str
    extra: str = "stages"


def _stage(name: str, summary: str, extra: str = "stages") -> Program:
    return Program(f"pairmill.stages.{name}.command", summary, extra)


PURPOSES: Final = {
    "From data to epochs": {
        "init": Program("pairmill.begin.command", "Look at data and write the YAML file by which it becomes rows."),
        "run": Program("pairmill.line.run", "Run the pipeline from raw data to sampled epochs, or to a trained net."),
    },
    "Look at what was made": {
        "status": Program(
            "pairmill.line.status", "Print what is finished below a root, what of what, and what comes next.", "sampler"
        ),
        "show": Program(
            "pairmill.show.command", "Print rows, tokens, samples or batches as a model sees them; diff= two."
        ),
        "stats": Program(
            "pairmill.stats", "Print rows, tokens, lengths and sources of anything that is finished.", "sampler"
        ),
        "audit": Program(
            "pairmill.audit.command", "Check a sample of a plan's rows, count forms of answers, let a model judge."
        ),
        "line": Program("pairmill.lineage.command", "Write the page over all stages of a sample."),
        "trace": Program(
            "pairmill.lineage.trace_command",
            "Print the rows of a step of a training, and the records they are made of.",
        ),
        "policy": Program(
            "pairmill.lineage.policy_command",
            "Print what a policy allows and denies of what is there: policy check.",
            "sampler",
        ),
        "verify": Program(
            "pairmill.verify", "Compare finished folders with their manifests, byte for byte.", "sampler"
        ),
        "remove": Program(
            "pairmill.removal.command", "Take single records out of all later runs, and say where they were.", "sampler"
        ),
        "prune": Program("pairmill.lineage.prune", "Say what can go below a root and why; remove it.", "sampler"),
    },
    "Hand it on": {
        "export": Program("pairmill.export.command", "Write a result in the form that other trainers read."),
        "publish": Program("pairmill.publish.command", "Publish a result, with a card, on the Hub or in a bucket."),
    },
    "Whether a change of the data helps": {
        "compare": Program("pairmill.line.compare", "Train nets on several plans and say which is better.", "train"),
        "search": Program("pairmill.line.search", "Train proxies and find the mixture that loses least.", "train"),
    },
    "Stages": {
        "fetch": _stage("fetch", "Bring raw data to the project, at locked revisions, with digests and licences."),
        "clean": _stage("clean", "Turn raw instruction data sets into rows {condition, instruction, response}."),
        "curate": _stage("curate", "Find and remove duplicates, leaks of benchmarks and poor rows."),
        "select": _stage("select", "Choose the rows worth training on, by target texts, by attributes, or by both."),
        "train_tokenizer": _stage("train_tokenizer", "Train a byte-level tokenizer on rows."),
        "tokenize": _stage("tokenize", "Encode rows into per-task token arrays."),
        "mix": _stage("mix", "Plan how many response tokens of each source the training has, epoch by epoch."),
        "sample": _stage(
            "sample", "Draw stratified epochs of a tokenized folder into a folder that a trainer maps.", "sampler"
        ),
        "train": _stage(
            "train", "Train a net on a sampled folder, on flat token files, or on a data set of the Hub.", "train"
        ),
        "evaluate": _stage(
            "evaluate",
            "Ask a trained model the questions of benchmarks, and measure its loss on held-out rows.",
            "evaluate",
        ),
    },
    "Kubeflow": {
        "compile": Program(
            "pairmill.kubeflow.compile", "Compile the pipelines to the YAML that Kubeflow takes.", "pipelines"
        ),
        "submit": Program("pairmill.kubeflow.submit.command", "Start a run on a cluster and watch it.", "pipelines"),
        "lint": Program(
            "pairmill.kubeflow.lint", "Check compiled pipelines against what Kubeflow accepts.", "pipelines"
        ),
    },
    "This command": {
        "completion": Program(
            "pairmill.interface.completion", "Print the script that completes commands in bash or zsh.", ""
        )
    },
}
"""By purpose and name."""

TASKS: Final = {
    "chain": Program("pairmill.interface.chain", "Run several stages one after another in one pod."),
    "compare": _stage(
        "compare", "Compare plans of sample: what differs between them, and which one trains the better net."
    ),
    "search": _stage(
        "search",
        "Draw mixtures for small trainings; fit a law to what they lose, and find the mixture that loses least.",
    ),
}
"""What tasks of a pipeline run by ``pairmill stage <name>``, besides the stages above."""

PROGRAMS: Final = {name: program for group in PURPOSES.values() for name, program in group.items()}
STAGES: Final = {**PURPOSES["Stages"], **{name: TASKS[name] for name in ("compare", "search")}}


def run(arguments: Sequence[str]) -> int:
    """Run the program that the first argument names on the others; return the exit code."""
    name, rest = (arguments[0], arguments[1:]) if arguments else ("", arguments)
    if name == "--version":
        sys.stdout.write(f"pairmill {pairmill.__version__}\n")
        return 0
    if name in {"--help", "-h", "help"}:
        sys.stdout.write(help_text())
        return 0
    programs = PROGRAMS
    if name == "stage" or (name in {"compare", "search"} and rest[:1] == ["settings"]):
        programs = {**STAGES, **TASKS}
        if name == "stage":
            name, rest = (rest[0], rest[1:]) if rest else ("", rest)
    program = programs.get(name) or _stage_of_folder(name)
    if program is None:
        what = "unknown command" if name else "no command"
        return _refuse(name, what=what, got=repr(name), known=sorted(programs))
    try:
        code: int = importlib.import_module(program.module).main(rest)
    except ModuleNotFoundError as error:  # also of what a program imports where it needs it
        if error.name is None or error.name.partition(".")[0] == "pairmill":
            raise
        return _refuse(name, what="cannot run here", got=f"no {error.name} in this environment", extra=program.extra)
    return code


def help_text() -> str:
    """Return the text of ``pairmill --help``: all programs by purpose."""
    lines = ["usage: pairmill <command> key=value …", ""]
    width = max(map(len, PROGRAMS)) + 2
    for purpose, programs in PURPOSES.items():
        lines += [f"{purpose}:", *(f"  {name:{width}}{item.summary}" for name, item in programs.items()), ""]
    lines.append("pairmill <command> --help lists its options; pairmill --version says which pairmill this is.")
    return "\n".join(lines) + "\n"


def _stage_of_folder(name: str) -> Program | None:
    """Return a stage that was added to ``pairmill/stages`` and is not listed here."""
    folder = Path(__file__).parent.parent / "stages" / name
    return _stage(name, "") if name.isidentifier() and (folder / "command.py").is_file() else None


def _refuse(name: str, **refusal: Any) -> int:
    """End with a usage error; what words it is imported for such errors alone."""
    from pairmill.interface import cli

    return cli.refuse(name, **refusal)
