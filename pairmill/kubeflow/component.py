"""A stage as a Kubeflow container component, made from its dataclass. The only module of the library that imports kfp.

The container gets one argument, the executor input (:mod:`pairmill.interface.launcher`): it holds every value, defaults
included. Values in ``args`` one by one would fail where a component's default is used (kubeflow/pipelines#14175) and
count twice against the size of a pod's template.
"""

import dataclasses
import inspect
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, get_type_hints

from kfp import dsl

from pairmill.engine.options import default_of
from pairmill.interface import launcher

# No image is published yet. No registry can answer to this name (RFC 2606), so a forgotten image= fails at once.
_PLACEHOLDER = "registry.invalid/pairmill/{}@sha256:" + "0" * 64
PLACEHOLDER_IMAGE = _PLACEHOLDER.format("pipeline")

IMAGE_VARIABLE = "PAIRMILL_IMAGE"
"""Of the image ``pipeline``; for another one its name follows, as in ``PAIRMILL_IMAGE_TRAINER``."""

_PARAMETERS = {"output": (str, "URI of the finished folder"), "fingerprint": (str, "identity of its content")}
_ARTIFACTS = {
    launcher.MANIFEST: (dsl.Dataset, "what the folder holds, and what became of every row"),
    launcher.METRICS: (dsl.Metrics, "numbers to compare between runs"),
    launcher.REPORT: (dsl.HTML, "report for people"),
}
SHOWN = (launcher.METRICS, launcher.REPORT)
"""The artifacts of a task that are for people."""


class Argument(NamedTuple):
    """A parameter of a component's function."""

    kind: Any
    """Its annotation."""
    default: Any
    """``inspect.Parameter.empty`` = it has none."""
    text: str


def arguments(stage: launcher.Component) -> dict[str, Argument]:
    """Return what a stage takes and hands on, by name: options, manifests for lineage, output parameters, artifacts."""
    hints = get_type_hints(stage.config)
    taken: dict[str, Argument] = {}
    for item in dataclasses.fields(stage.config):
        default = default_of(item)
        if default is dataclasses.MISSING or item.name in stage.required:
            default = inspect.Parameter.empty
        kind = _kind(hints[item.name])
        if item.name in stage.lists:
            kind, default = list, [] if default == "" else default
        taken[item.name] = Argument(kind, default, item.metadata["help"])
    for name in stage.reads:
        text = f"manifest of the stage that made {name}, for lineage"
        taken[launcher.lineage(name)] = Argument(dsl.Input[dsl.Dataset], None, text)
    if stage.passes_on:
        text = "manifest of the stage that found what is given, for lineage"
        taken[launcher.GIVEN] = Argument(dsl.Input[dsl.Dataset], None, text)
    for name, (kind, text) in {**_PARAMETERS, **stage.outputs}.items():
        taken[name] = Argument(dsl.OutputPath(kind), inspect.Parameter.empty, text)
    for name, (artifact, text) in _ARTIFACTS.items():
        taken[name] = Argument(dsl.Output[artifact], inspect.Parameter.empty, text)
    return taken


def summary(stage: launcher.Component) -> str:
    """Return what a stage does, in one line."""
    return (stage.config.__doc__ or "").strip().splitlines()[0]


def component(stage: launcher.Component, image: str = "") -> Any:
    """Make the component of a stage for pipelines of others: every option with its text and default, every output.

    Args:
        stage: what Kubeflow is told of the stage.
        image: image of the container; empty = that of the environment, or a placeholder.
    """
    taken = arguments(stage)
    made = _component(stage, image, {name: (kind, default) for name, (kind, default, _) in taken.items()})
    specification = made.component_spec
    for name, described in {**specification.inputs, **specification.outputs}.items():
        described.description = taken[name].text
    return made


def task_component(
    stage: launcher.Component,
    image: str,
    inputs: Mapping[str, type],
    outputs: Mapping[str, type],
    *,
    artifacts: Sequence[str] = SHOWN,
    name: str = "",
    program: str = "",
) -> Any:
    """Make the component of a stage for one task: what the task passes and hands on, without a text or a default.

    The workflow of a run holds it eight times for each task: docs/decisions/0049-weight-of-a-run.md.

    Args:
        stage: what Kubeflow is told of the stage.
        image: as of :func:`component`.
        inputs: the parameters that the task passes, by name.
        outputs: the output parameters that other tasks read, by name.
        artifacts: what it puts out for people.
        name: of the component; empty = that of the stage.
        program: another program than the stage's, and a command of it; empty = that.
    """
    given: dict[str, tuple[Any, Any]] = {key: (kind, inspect.Parameter.empty) for key, kind in inputs.items()}
    given |= {key: (dsl.OutputPath(kind), inspect.Parameter.empty) for key, kind in outputs.items()}
    given |= {key: (dsl.Output[_ARTIFACTS[key][0]], inspect.Parameter.empty) for key in artifacts}
    return _component(stage, image, given, name, program)


def image_variable(stage: launcher.Component) -> str:
    """Return the environment variable that names the image of a stage."""
    return IMAGE_VARIABLE if stage.image == "pipeline" else f"{IMAGE_VARIABLE}_{stage.image.upper()}"


def placeholder(stage: launcher.Component) -> str:
    """Return the image of a component whose environment names none."""
    return _PLACEHOLDER.format(stage.image)


def inputs_of(stage: launcher.Component, names: Iterable[str]) -> dict[str, type]:
    """Return the types of these options of a stage as parameters."""
    hints = get_type_hints(stage.config)
    return {name: list if name in stage.lists else _kind(hints[name]) for name in names}


def _component(
    stage: launcher.Component, image: str, given: Mapping[str, tuple[Any, Any]], name: str = "", program: str = ""
) -> Any:
    def container(*_: Any) -> dsl.ContainerSpec:
        return dsl.ContainerSpec(
            image=image or os.environ.get(image_variable(stage), placeholder(stage)),
            command=["python", "-m", "pairmill", "stage", *(program or stage.name).split()],
            args=[launcher.FLAG, dsl.PIPELINE_TASK_EXECUTOR_INPUT_PLACEHOLDER],
        )

    # kfp reads name, docstring and signature of a function.
    container.__name__ = name or stage.name
    container.__doc__ = f"{summary(stage)}\n\nDocumentation: components/{stage.name}/README.md"
    container.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)
            for key, (kind, default) in given.items()
        ]
    )
    return dsl.container_component(container)


def _kind(hint: Any) -> type:
    """Return a parameter's type: text for lists (joined by commas) and choices, the option's own for the others."""
    return hint if hint in {int, float, bool} else str
