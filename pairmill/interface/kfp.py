"""A stage as a Kubeflow container component. The only module of the library that imports kfp.

What a component's container is given is one argument, the executor input (:mod:`pairmill.interface.launcher`): it
holds every value, defaults included. Values put into ``args`` one by one would fail where a component's default is used
(kubeflow/pipelines#14175) and count twice against the size of a pod's template.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from kfp import dsl

from pairmill.engine.stage import default_of
from pairmill.interface import launcher

# No image is published yet. The name is one that no registry can answer to (RFC 2606), so that a forgotten image=
# fails at once; `python -m pipelines.compile image=…` puts the real one in.
PLACEHOLDER_IMAGE = "registry.invalid/pairmill/pipeline@sha256:" + "0" * 64

IMAGE_VARIABLE = "PAIRMILL_IMAGE"


def container(stage: str) -> dsl.ContainerSpec:
    """The container of a stage's component: the image, the stage's module, and the executor input."""
    return dsl.ContainerSpec(
        image=os.environ.get(IMAGE_VARIABLE, PLACEHOLDER_IMAGE),
        command=["python", "-m", f"components.{stage}"],
        args=[launcher.FLAG, dsl.PIPELINE_TASK_EXECUTOR_INPUT_PLACEHOLDER],
    )


def default(config_class: type[Any], name: str) -> Any:
    """The default of an option as a component's signature takes it: lists joined by commas."""
    found = {item.name: default_of(item) for item in dataclasses.fields(config_class)}
    if found.get(name, dataclasses.MISSING) is dataclasses.MISSING:
        raise KeyError(f"{config_class.__name__} has no option {name} with a default")
    return found[name]
