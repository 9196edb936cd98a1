"""Tasks of a Kubeflow pipeline of runs: what :mod:`pipelines.runs` says, as kfp knows it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kfp import dsl

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
