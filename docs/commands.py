"""Every command with its options, as the help has them: docs/commands.md, and what the tab key completes."""

from __future__ import annotations

import contextlib
import io
import re
from dataclasses import dataclass
from functools import cache

from pairmill.interface import command
from pairmill.line.stages import EVERY


@dataclass(frozen=True)
class Described:
    """A command: its name, its usage, what it does, and of each option name, type, default and meaning."""

    name: str
    usage: str
    summary: str
    options: tuple[tuple[str, str, str, str], ...]


@cache
def described() -> tuple[Described, ...]:
    """Return all commands, those of a program after all programs."""
    result = []
    waiting = [*([name] for name in command.PROGRAMS), *(["stage", name] for name in command.TASKS)]
    for words in waiting:
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            command.run([*words, "--help"])
        text = shown.getvalue()
        (usage,) = re.findall(r"\Ausage: (pairmill .*)\n", text)
        summary = text.split("\n\n")[1].strip()
        options = re.findall(r"^  (\w+)  \((.*?); (required|default: .*)\)\n      (.*)$", text, re.MULTILINE)
        name = re.sub(r"^pairmill | key=value …$| bash\|zsh$", "", usage)
        result.append(Described(name, usage, summary, tuple(options)))
        further = re.findall(r"^commands, each with a --help of its own: (.*)$", text, re.MULTILINE)
        waiting += [[*words, each] for names in further for each in names.split(", ") if each not in words]
    return tuple(result)


def completion_table() -> str:
    """Return the lines that pairmill/interface/completion.py reads: command, option, type."""
    lines = [
        f"{each.name}\t{option}\t{kind}\n"
        for each in described()
        for option, kind, *_ in each.options or [("", "", "", "")]
    ]
    return "".join([*lines, *(f"completion {shell}\t\t\n" for shell in ("bash", "zsh"))])


def page() -> str:
    """Return every command in Markdown, with options: those of a stage are on its own page, and none is told twice."""
    options = {each.name: each.options for each in described()}
    parts = []
    for each in sorted(described(), key=lambda each: each.name):
        stage = each.name.removeprefix("stage ")
        if each.name in {*command.TASKS} - {*command.PROGRAMS}:  # what only Kubeflow starts
            continue
        lines = [f"## {each.name}\n", f"    {each.usage}\n", each.summary.replace("<", "&lt;")]
        if stage in EVERY and (stage != each.name or stage not in command.TASKS):
            lines.append(f"\nIts options: [{stage}](../components/{stage}/README.md).")
        else:
            parent = each.name.rpartition(" ")[0]
            above = options.get(parent, ())
            same = [name for name, *_ in (option for option in each.options if option in above)]
            lines += [f"\nAs of `{parent}`: {', '.join(f'`{name}`' for name in same)}."] if same else []
            own = [option for option in each.options if option not in above]
            lines += ["\n| option | type | default | meaning |", "|---|---|---|---|"] if own else []
            for name, kind, default, meaning in own:
                cells = (f"`{name}`", kind, default.removeprefix("default: "), meaning.replace("<", "&lt;"))
                lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)
