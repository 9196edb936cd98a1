"""Tasks of a Kubeflow pipeline of runs: what :mod:`pairmill.line.runs` says, as kfp knows it."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, get_type_hints

from kfp import dsl
from kfp.dsl import pipeline_channel

from pairmill.engine.options import default_of
from pairmill.interface import chain, launcher
from pairmill.kubeflow.component import inputs_of, task_component
from pairmill.kubeflow.placement import Placement
from pairmill.line.runs import StageRun
from pairmill.line.stages import EVERY


@dataclass(frozen=True)
class Tasks:
    """Executes stages as tasks of the pipeline that is being defined.

    Args:
        placement: what the cluster gives them: retries, resources, the GPU of what trains.
        image: of stages; empty = that of the environment, or a placeholder.
        trainer_image: of those that need torch.
    """

    placement: Placement
    image: str = ""
    trainer_image: str = ""
    together: dict[str, Any] = field(default_factory=dict)
    """Parameters of the pipeline that tasks take as options of the first one, all at once, and that output itself."""

    def __call__(self, stage: str, /, **options: Any) -> StageRun:
        handed, passed = self.apart(stage, options)
        more = {launcher.OPTIONS: self.together[launcher.OPTIONS]} if handed else {}
        return self._made(stage, {**passed, **more}, {launcher.OPTIONS: dict}, {})

    def apart(self, stage: str, options: Mapping[str, Any]) -> tuple[bool, dict[str, Any]]:
        """Return whether a stage takes what the first task hands on, and what it is passed beside that."""
        fields = {item.name: item for item in dataclasses.fields(EVERY[stage].config)}
        handed = {name for name, value in options.items() if value is self.together.get(name)}
        # If it would take one that it is not to have, it is passed each alone.
        handed = set() if (self.together.keys() & fields.keys()) - handed else handed
        # A stage has its own defaults, and only what else it is passed has to be in the workflow.
        passed = {
            name: value
            for name, value in options.items()
            if name not in handed and not (name in fields and _is(default_of(fields[name]), value))
        }
        return bool(handed), passed

    def first(self, stage: str, together: Mapping[str, type], given: Any, /, **options: Any) -> StageRun:
        """Place the first task of the pipeline, which hands on parameters to the tasks after it.

        Args:
            together: the parameters that it hands on, with their types.
            given: has the parameters of the pipeline.
        """
        values = {name: getattr(given, name) for name in together}
        # Of what it reads too: every value is handed on.
        defaults = {name: "" for name in together if name in options}
        passed = {**values, **options, launcher.DEFAULTS: defaults}
        types = {**together, launcher.DEFAULTS: dict}
        made = self._made(stage, passed, types, {launcher.OPTIONS: dict})
        self.together.update(values, **{launcher.OPTIONS: made.outputs[launcher.OPTIONS]})
        return made

    def _made(
        self, stage: str, passed: dict[str, Any], types: Mapping[str, type], outputs: Mapping[str, type]
    ) -> StageRun:
        known = EVERY[stage]
        fields = {item.name for item in dataclasses.fields(known.config)}
        component = task_component(
            known,
            self.trainer_image if known.image == "trainer" else self.image,
            inputs_of(known, passed.keys() & fields) | {name: types[name] for name in passed if name not in fields},
            # Rows and fingerprint are in the manifest; no other task reads them.
            {
                "output": str,
                **{name: kind for name, (kind, _) in known.outputs.items() if name != "rows_out"},
                **outputs,
            },
        )
        task = self.placement.apply(component(**passed), stage)
        task.set_display_name(stage.replace("_", " ").capitalize())
        return StageRun(task.outputs)

    def alone(self, stage: launcher.Component, program: str, title: str, passed: Mapping[str, Any]) -> None:
        """Place the only task of a pipeline: a command of a stage's program, with every parameter passed one by one.

        Args:
            stage: what the command takes; placed as the stage of that name is.
            program: the stage, and its command.
            title: for people.
            passed: parameters of the pipeline by name.
        """
        types = inputs_of(stage, passed)
        made = task_component(stage, self.trainer_image, types, {"output": str}, name="watch", program=program)
        self.placement.apply(made(**passed), stage.name).set_display_name(title)

    def pod(self) -> Pod:
        """Begin a pod of several stages, one after another: it executes them as this does, once they are placed."""
        return Pod(self)

    @contextmanager
    def each(self, items: Any) -> Iterator[Any]:
        """Loop over a list of texts by name, an output of a task: ``with tasks.each(…) as run: … run.<name> …``."""
        with dsl.ParallelFor(items, parallelism=self.placement.parallelism) as item:
            yield item

    @staticmethod
    def collected(output: Any) -> Any:
        """Collect an output of a task in a loop, of all iterations, in the order of the items."""
        return dsl.Collected(output)


@dataclass(frozen=True)
class _Output:
    """The folder of an earlier stage of the same pod."""

    stage: str


@dataclass(frozen=True)
class Pod:
    """Stages that are one task of the pipeline (:mod:`pairmill.interface.chain`)."""

    tasks: Tasks
    _steps: list[dict[str, Any]] = field(default_factory=list)
    _inputs: dict[str, Any] = field(default_factory=dict)
    _types: dict[str, type] = field(default_factory=dict)

    def __call__(self, stage: str, /, **options: Any) -> StageRun:
        known = EVERY[stage]
        handed, passed = self.tasks.apart(stage, options)
        self._steps.append(
            {
                "stage": stage,
                "options": {name: self._given(known, name, value) for name, value in passed.items()},
                **({"together": True} if handed else {}),
            }
        )
        return StageRun({"output": _Output(stage)})

    def _given(self, stage: launcher.Component, name: str, value: Any) -> Any:
        """Return how a step names the value: an input of the task, a folder, or itself."""
        if isinstance(value, _Output):
            return f"={value.stage}.output"
        if not isinstance(value, pipeline_channel.PipelineChannel):
            return value
        key = name if self._inputs.get(name, value) is value else f"{stage.name}_{name}"
        self._inputs[key] = value
        (self._types[key],) = inputs_of(stage, [name]).values()
        return f"={key}"

    def place(self, title: str) -> StageRun:
        """Make the task; its outputs are the folders of its stages, by their names."""
        tasks, last = self.tasks, EVERY[self._steps[-1]["stage"]]
        inputs, types = {**self._inputs, chain.STEPS: self._steps}, {**self._types, chain.STEPS: list}
        if any(step.get("together") for step in self._steps):
            inputs[launcher.OPTIONS], types[launcher.OPTIONS] = tasks.together[launcher.OPTIONS], dict
        component = task_component(
            last,
            tasks.trainer_image,
            types,
            {step["stage"]: str for step in self._steps},
            artifacts=(launcher.REPORT,),
            name=title.lower(),
            program="chain",
        )
        task = tasks.placement.apply(component(**inputs), "train")
        task.set_display_name(title)
        return StageRun(task.outputs)


def pipeline(
    name: str, title: str, given: type[Any], define: Callable[[Tasks, Any], None], pages: Mapping[str, str]
) -> Callable[..., Any]:
    """Return the function that makes a pipeline for kfp to compile.

    Its arguments are the placement, which says what the cluster gives the tasks, and by name ``image`` and
    ``trainer_image`` (empty = that of the environment, or a placeholder) and ``docs``, the address below which the
    repository's files can be read, for links (empty = their paths alone).

    Args:
        title: for people.
        given: a dataclass of its parameters.
        define: makes its tasks, of the parameters.
        pages: documents by title.
    """

    def build(placement: Placement, *, image: str = "", trainer_image: str = "", docs: str = "") -> Any:
        signature, tasks = signature_of(given), Tasks(placement, image, trainer_image)

        def made(*values: Any) -> None:
            define(tasks, SimpleNamespace(**signature.bind(*values).arguments))

        # kfp reads both.
        made.__signature__ = signature  # type: ignore[attr-defined]
        made.__doc__ = str(given.__doc__)
        # In Markdown <root> would be a tag.
        lines = [f"- `{item.name}`: {item.metadata['help'].replace('<', '&lt;')}" for item in dataclasses.fields(given)]
        links = [f"[{text}]({docs.rstrip('/')}/{page})" if docs else f"{text}: {page}" for text, page in pages.items()]
        description = "\n".join([str(given.__doc__), "", *lines, "", ", ".join(links)])
        with short_stacks():
            return dsl.pipeline(made, name=name, display_name=title, description=description)

    return build


def signature_of(given: type[Any]) -> inspect.Signature:
    """Return the signature of a function that takes the fields of a dataclass of parameters."""
    hints = get_type_hints(given)
    return inspect.Signature(
        [
            inspect.Parameter(
                item.name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                annotation=hints[item.name],
                default=inspect.Parameter.empty if default_of(item) is dataclasses.MISSING else default_of(item),
            )
            for item in dataclasses.fields(given)
        ]
    )


def _is(default: Any, value: Any) -> bool:
    """Return whether a value is this default, and not what a task or a parameter will give."""
    return type(value) is type(default) and bool(value == default)


@contextmanager
def short_stacks() -> Iterator[None]:
    """kfp takes the stack at every setting of a task, only to name its caller: source lines and modules, which are
    looked for in all that is imported and take nine tenths of a build, are left out.
    """
    whole = inspect.stack
    inspect.stack = _frames
    try:
        yield
    finally:
        inspect.stack = whole


def _frames(context: int = 0) -> list[inspect.FrameInfo]:
    frames = (frame for frame, _ in traceback.walk_stack(sys._getframe(1)))
    return [inspect.FrameInfo(at, at.f_code.co_filename, at.f_lineno, at.f_code.co_name, None, None) for at in frames]
