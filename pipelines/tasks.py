"""Tasks of a Kubeflow pipeline of runs: what :mod:`pipelines.runs` says, as kfp knows it."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, get_type_hints

from kfp import dsl

from pairmill.engine.options import default_of
from pairmill.interface import kfp, launcher
from pipelines.placement import Placement
from pipelines.runs import Made
from pipelines.stages import EVERY


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
    _inside: list[Any] = field(default_factory=list)
    """The loop that tasks are made in."""
    _together: dict[str, Any] = field(default_factory=dict)
    """Parameters of the pipeline that tasks take as options of the first one, all at once, and that output itself."""

    def __call__(self, stage: str, /, **options: Any) -> Made:
        known = EVERY[stage]
        handed = {name: value for name, value in options.items() if value is self._together.get(name)}
        unread = (self._together.keys() & {item.name for item in dataclasses.fields(known.config)}) - handed.keys()
        # It would take one that it is not to have: it is passed each alone.
        handed = {} if unread else handed
        passed = {name: value for name, value in options.items() if name not in handed}
        if handed:
            passed[launcher.OPTIONS] = self._together[launcher.OPTIONS]
        return self._made(stage, passed, {launcher.OPTIONS: dict}, {})

    def first(self, stage: str, together: Mapping[str, type], given: Any, /, **options: Any) -> Made:
        """The first task of the pipeline, which hands on parameters to the tasks after it.

        Args:
            stage: its name.
            together: the parameters that it hands on, with their types.
            given: has the parameters of the pipeline.
            options: of the stage.
        """
        values = {name: getattr(given, name) for name in together}
        # Of what it reads too: every value is handed on.
        defaults = {name: "" for name in together if name in options}
        passed = {**values, **options, launcher.DEFAULTS: defaults}
        types = {**together, launcher.DEFAULTS: dict}
        made = self._made(stage, passed, types, {launcher.OPTIONS: dict})
        self._together.update(values, **{launcher.OPTIONS: made.outputs[launcher.OPTIONS]})
        return made

    def _made(self, stage: str, passed: dict[str, Any], types: Mapping[str, type], outputs: Mapping[str, type]) -> Made:
        known = EVERY[stage]
        fields = {item.name: item for item in dataclasses.fields(known.config)}
        # A stage has its own defaults, and only what else it is passed has to be in the workflow.
        passed = {
            name: value
            for name, value in passed.items()
            if name not in fields or not _is(default_of(fields[name]), value)
        }
        component = kfp.task_component(
            known,
            self.trainer_image if known.image == "trainer" else self.image,
            kfp.inputs_of(known, passed.keys() & fields.keys())
            | {name: types[name] for name in passed if name not in fields},
            # Rows and fingerprint are in the manifest; no other task reads them.
            {
                "output": str,
                **{name: kind for name, (kind, _) in known.outputs.items() if name != "rows_out"},
                **outputs,
            },
            # Of each run there is the report of its training and of its evaluation: its numbers are in the last task's.
            artifacts=() if stage == "sample" else (launcher.REPORT,) if self._inside else kfp.SHOWN,
        )
        task = self.placement.apply(component(**passed), stage)
        task.set_display_name(stage.replace("_", " ").capitalize())
        return Made(task.outputs)

    @contextmanager
    def each(self, items: Any) -> Iterator[Any]:
        """A loop over a list of texts by name, an output of a task: ``with tasks.each(…) as run: … run.<name> …``."""
        with dsl.ParallelFor(items, parallelism=self.placement.parallelism) as item:
            self._inside.append(item)
            yield item
            self._inside.pop()

    @staticmethod
    def collected(output: Any) -> Any:
        """An output of a task in a loop, of all iterations, in the order of the items."""
        return dsl.Collected(output)


def pipeline(
    name: str,
    title: str,
    given: type[Any],
    define: Callable[[SimpleNamespace], None],
    *,
    pages: Mapping[str, str],
    docs: str = "",
) -> Any:
    """A pipeline as kfp knows it.

    Args:
        name: of the pipeline.
        title: for people.
        given: a dataclass of its parameters.
        define: makes its tasks, of the parameters.
        pages: documents by title.
        docs: address below which they can be read, for links; empty = their paths alone.
    """
    signature = signature_of(given)

    def made(*values: Any) -> None:
        define(SimpleNamespace(**signature.bind(*values).arguments))

    # kfp reads both.
    made.__signature__ = signature  # type: ignore[attr-defined]
    made.__doc__ = str(given.__doc__)
    # In Markdown <root> would be a tag.
    lines = [f"- `{item.name}`: {item.metadata['help'].replace('<', '&lt;')}" for item in dataclasses.fields(given)]
    links = [f"[{text}]({docs.rstrip('/')}/{page})" if docs else f"{text}: {page}" for text, page in pages.items()]
    description = "\n".join([str(given.__doc__), "", *lines, "", ", ".join(links)])
    with short_stacks():
        return dsl.pipeline(made, name=name, display_name=title, description=description)


def signature_of(given: type[Any]) -> inspect.Signature:
    """The signature of a function that takes the fields of a dataclass of parameters."""
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
    """Whether a value is this default, and not what a task or a parameter will say."""
    return type(value) is type(default) and bool(value == default)


@contextmanager
def short_stacks() -> Iterator[None]:
    """kfp takes the stack at every setting of a task, only to name its caller: source lines, which take most of the
    time, are left out.
    """
    whole = inspect.stack
    inspect.stack = partial(whole, 0)
    try:
        yield
    finally:
        inspect.stack = whole
