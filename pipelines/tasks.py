"""Tasks of a Kubeflow pipeline of runs: what :mod:`pipelines.runs` says, as kfp knows it."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, get_type_hints

from kfp import dsl

from pairmill.engine.options import default_of
from pairmill.interface import kfp
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

    def __call__(self, stage: str, /, **options: Any) -> Made:
        known = EVERY[stage]
        component = kfp.component(known, self.trainer_image if known.image == "trainer" else self.image)
        task = self.placement.apply(component(**options), stage)
        task.set_display_name(stage.replace("_", " ").capitalize())
        return Made(task.outputs)

    @contextmanager
    def each(self, items: Any) -> Iterator[Any]:
        """A loop over a list of texts by name, an output of a task: ``with tasks.each(…) as run: … run.<name> …``."""
        with dsl.ParallelFor(items, parallelism=self.placement.parallelism) as item:
            yield item

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
    made.__doc__ = documentation_of(given)
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


def documentation_of(given: type[Any]) -> str:
    """The docstring of such a function."""
    texts = [f"    {item.name}: {item.metadata['help']}" for item in dataclasses.fields(given)]
    return "\n".join([f"{given.__doc__}\n", "Args:", *texts])


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
