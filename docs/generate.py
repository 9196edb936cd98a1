"""Writes what documents share with the code: options of every stage, the index of components, sources, a picture.

``make generate`` runs it and ``make check`` fails if that changes a file.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import re
import textwrap
from pathlib import Path
from typing import Any, get_args, get_type_hints

import commands
import imports
from kfp import dsl
from picture import picture

from pairmill.engine.options import default_of
from pairmill.evaluation.settings import EvaluateSettings
from pairmill.formats import templates
from pairmill.formats.settings_file import describe as kind_of
from pairmill.formats.settings_file import to_json
from pairmill.interface import completion
from pairmill.interface.cli import type_name
from pairmill.interface.launcher import FLAG, Component
from pairmill.kubeflow import component
from pairmill.line.stages import EVERY
from pairmill.sources.datasets import SOURCES
from pairmill.stages.clean.config import source_options
from pairmill.stages.fetch.planned import describe
from pairmill.stages.sample.inspect.config import InspectConfig
from pairmill.stages.search.settings import SearchSettings
from pairmill.training.settings import TrainSettings

TOP = Path(__file__).parent.parent
VERIFIED = "2026-11-26T00:00:00Z"
"""When the components were last compiled and run under the stand-in for Kubeflow's launcher; not on a real cluster."""


OWNERS = "approvers:\n  - pairmill\nreviewers:\n  - pairmill\n"
"""Filled in by those who copy a component into a repository of theirs."""


def options_table(config: type[Any]) -> str:
    """Options as a Markdown table."""
    hints = get_type_hints(config)
    lines = ["| option | type | default | meaning |", "|---|---|---|---|"]
    for item in dataclasses.fields(config):
        value = default_of(item)
        text = str(value)
        default = f"`{text if len(text) < 60 else text[:40] + '…'}`" if text else "empty"
        if value is dataclasses.MISSING:
            default = "required"
        cells = [f"`{item.name}`", type_name(hints[item.name]), default, item.metadata["help"].replace("<", "&lt;")]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def settings_tables(settings: Any) -> str:
    """Sections of a file of settings, each a Markdown table."""
    parts = []
    for item in dataclasses.fields(settings):
        section = getattr(settings, item.name)
        if not dataclasses.is_dataclass(section):
            parts.append(f"**`{item.name}`**, default `{section}`: {item.metadata['help']}\n")
            continue
        hints = get_type_hints(type(section))
        lines = [
            f"**`{item.name}`**: {item.metadata['help']}\n",
            "| setting | type | default | meaning |",
            "|---|---|---|---|",
        ]
        for each in dataclasses.fields(section):
            value = getattr(section, each.name)
            inner = dataclasses.is_dataclass(value)
            default = "" if inner else f"`{json.dumps(to_json(value), ensure_ascii=False)}`"
            kind = "settings" if inner else kind_of(hints[each.name])
            cells = [f"`{each.name}`", kind, default, each.metadata["help"]]
            lines.append("| " + " | ".join(cell.replace("|", "\\|").replace("<", "&lt;") for cell in cells) + " |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts).rstrip()


def index_table() -> str:
    """Stages as a Markdown table."""
    lines = ["| stage | what it does |", "|---|---|"]
    for name, stage in EVERY.items():
        summary = (stage.config.__doc__ or "").strip().splitlines()[0]
        lines.append(f"| [`{name}`]({name}/README.md) | {summary} |")
    return "\n".join(lines)


def sources_table() -> str:
    """Return sources as a Markdown table."""
    lines = ["| source | data set |", "|---|---|"]
    for name, source in sorted(SOURCES.items()):
        summary = (importlib.import_module(type(source).__module__).__doc__ or "").strip().splitlines()[0]
        lines.append(f"| `{name}` | {summary.replace('``', '`')} |")
    return "\n".join(lines)


def source_options_table() -> str:
    """Options of single sources as a Markdown table."""
    lines = ["| option | type | default | meaning |", "|---|---|---|---|"]
    lines += [f"| `{name}` | {kind} | `{default}` | {text} |" for name, kind, default, text in source_options()]
    return "\n".join(lines)


def licences_table() -> str:
    """Origin, licence and citation of every source as a Markdown table."""
    lines = ["| source | origin | licence | citation |", "|---|---|---|---|"]
    for name, source in SOURCES.items():
        cells = [f"`{name}`", f"`{describe(source)}`", source.licence, source.citation]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def _wrapped(text: str, indent: str) -> str:
    """Return text as lines of at most 120 characters; what follows the first one is set in."""
    return "\n".join(textwrap.wrap(text, 120, initial_indent=indent, subsequent_indent=indent + "    "))


def _literal(value: Any) -> str:
    """Return a default as ruff writes it."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def component_module(stage: Component) -> str:
    """Return the module of a component that needs ``kfp`` alone, so that it can be copied into any pipeline."""
    # kfp passes them by place, and Python wants what has no default first.
    taken = dict(
        sorted(component.arguments(stage).items(), key=lambda item: item[1].default is not inspect.Parameter.empty)
    )
    kinds = {name: annotation(argument.kind) for name, argument in taken.items()}
    defaults = {
        name: "" if argument.default is inspect.Parameter.empty else f" = {_literal(argument.default)}"
        for name, argument in taken.items()
    }
    return "\n".join(
        [
            f'"""{component.summary(stage)}"""\n',
            "import os\n",
            "from kfp import compiler, dsl\n",
            "# The name by which kubeflow/pipelines-components finds what its READMEs tell of.",
            "from kfp.dsl import container_component as component\n",
            "IMAGE = os.environ.get(",
            f'    "{component.image_variable(stage)}",',
            f'    "{component.placeholder(stage)}",',
            ")",
            f'"""The image of {stage.image}, by digest: docs/components.md says how it is built."""\n\n',
            "@component",
            f"def {stage.name}(",
            *(f"    {name}: {kinds[name]}{defaults[name]}," for name in taken),
            ") -> dsl.ContainerSpec:",
            f'    """{component.summary(stage)}\n',
            f"    Documentation: components/{stage.name}/README.md\n",
            "    Args:",
            *(_wrapped(f"{name}: {argument.text}", " " * 8) for name, argument in taken.items()),
            '    """',
            "    return dsl.ContainerSpec(",
            "        image=IMAGE,",
            f'        command=["python", "-m", "pairmill", "stage", "{stage.name}"],',
            f'        args=["{FLAG}", dsl.PIPELINE_TASK_EXECUTOR_INPUT_PLACEHOLDER],',
            "    )\n\n",
            'if __name__ == "__main__":',
            f'    compiler.Compiler().compile({stage.name}, __file__.replace(".py", ".yaml"))\n',
        ]
    )


def annotation(kind: Any) -> str:
    """Return how the module of a component writes the kind of an argument."""
    if isinstance(kind, type):
        return kind.__name__
    if isinstance(kind, dsl.OutputPath):
        return f"dsl.OutputPath({kind.type.__name__})"
    artifact, direction = get_args(kind)
    return f"dsl.{direction.__name__.removesuffix('Annotation')}[dsl.{artifact.__name__}]"


def write_component(name: str) -> None:
    """Write the module, the owners and the metadata of a component, in the form of kubeflow/pipelines-components."""
    folder = TOP / "components" / name
    (folder / "component.py").write_text(component_module(EVERY[name]), encoding="utf-8")
    (folder / "OWNERS").write_text(OWNERS, encoding="utf-8")
    (folder / "metadata.yaml").write_text(
        f"---\nname: {name}\nstability: beta\ndependencies:\n  kubeflow:\n    - name: Pipelines\n"
        f"      version: '>=2.15.2'\ntags:\n  - pretraining-data\nlastVerified: {VERIFIED}\n",
        encoding="utf-8",
    )


def put(path: Path, name: str, text: str) -> None:
    """Replace the text between the markers ``<!-- name -->`` and ``<!-- /name -->``."""
    old = path.read_text(encoding="utf-8")
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    new, count = pattern.subn(lambda match: match.group(1) + text + "\n" + match.group(2), old)
    if count != 1:
        raise SystemExit(f"{path}: {count} places for {name}, expected one")
    path.write_text(new, encoding="utf-8")


def main() -> None:
    """Write all tables and the picture."""
    put(TOP / "components" / "README.md", "index", index_table())
    for name, stage in EVERY.items():
        write_component(name)
        put(TOP / "components" / name / "README.md", "options", options_table(stage.config))
    put(TOP / "components" / "sample" / "README.md", "inspect options", options_table(InspectConfig))
    put(TOP / "docs" / "training.md", "settings", settings_tables(TrainSettings()))
    put(TOP / "docs" / "evaluation.md", "settings", settings_tables(EvaluateSettings()))
    put(TOP / "docs" / "searching.md", "settings", settings_tables(SearchSettings()))
    put(TOP / "components" / "tokenize" / "README.md", "templates", templates.table())
    put(TOP / "pairmill" / "sources" / "README.md", "sources", sources_table())
    put(TOP / "components" / "clean" / "README.md", "source options", source_options_table())
    put(TOP / "docs" / "sources.md", "licences", licences_table())
    put(TOP / "docs" / "architecture.md", "imports", imports.picture())
    put(TOP / "docs" / "architecture.md", "rooms", imports.table())
    put(TOP / "docs" / "commands.md", "commands", commands.page())
    completion.TABLE.write_text(commands.completion_table(), encoding="utf-8")
    (TOP / "docs" / "loader.svg").write_text(picture(), encoding="utf-8")


if __name__ == "__main__":
    main()
