"""The contract between a program and Kubeflow's launcher, without kfp (stage images have none).

A component's only arguments are ``--executor-input {{$}}``. The placeholder becomes one JSON object with every input
value, defaults included (which the ``{{$.inputs…}}`` placeholders of Kubeflow Pipelines 2.17.0 lack), and the place of
every output. Source: kubeflow/pipelines, ``api/v2alpha1/pipeline_spec.proto``, messages ExecutorInput and
ExecutorOutput; artifact URIs are mounted as in ``backend/src/v2/component/launcher_v2.go``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from pairmill import storage
from pairmill.errors import UsageError

if TYPE_CHECKING:
    from pairmill.report.model import Report

FLAG = "--executor-input"

Value = str | int | list[str] | list[dict[str, str]] | dict[str, Any]
"""Of an output parameter."""

OPTIONS = "options"
"""An input of any task, and an output of the first one: the options of the run that are not the default, by name."""

DEFAULTS = "defaults"
"""An input of the task that puts out :data:`OPTIONS`: defaults of later stages, of what it is to hand on."""

SECRETS = "/var/run/secrets/pairmill"
"""Where the secret of the object stores is mounted in a pod."""

STORE_SECRETS = "/var/run/secrets/minio"
"""Where that of Kubeflow's own store is mounted."""

# Files in these folders that are variables, unless the pod has them already. As variables of the pod they would be in
# the workflow object eight times for each task. Kubeflow's own are not AWS_*, which would take precedence over a pod's
# own identity.
_VARIABLES = {
    **{
        name: f"{SECRETS}/{name}"
        for name in (
            "AWS_ACCESS_KEY_ID",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_SESSION_TOKEN",
            "AWS_ENDPOINT_URL",
            "AWS_REGION",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "GOOGLE_CLOUD_PROJECT",
            "STORAGE_EMULATOR_HOST",
        )
    },
    "MINIO_ACCESS_KEY": f"{STORE_SECRETS}/accesskey",
    "MINIO_SECRET_KEY": f"{STORE_SECRETS}/secretkey",
}

# The launcher copies these schemes to and from folders of the same name at the top of the file system.
_MOUNTS = {"gs": "/gcs", "s3": "/s3", "minio": "/minio"}

MANIFEST, METRICS, REPORT = "manifest", "metrics", "report"
"""The artifacts that every component puts out."""


@dataclass(frozen=True)
class Component:
    """What Kubeflow is told of a stage: its options, and what follows from them.

    Args:
        name: of its folder in ``components``.
        config: its options, each a parameter of the component.
        reads: options that take the URI of what another stage made. Each has an artifact for lineage beside it.
        passes_on: whether it may be given its result, by a task that found where it is: one more artifact for lineage.
        required: options that a pipeline must give although the command line has a default.
        outputs: output parameters beside ``output`` and ``fingerprint``: type and meaning by name.
        image: which one has it.
        lists: options of several values that come from a loop: a list there, where others are joined by commas.
    """

    name: str
    config: type[Any]
    reads: tuple[str, ...] = ()
    passes_on: bool = False
    required: tuple[str, ...] = ()
    outputs: Mapping[str, tuple[type, str]] = field(default_factory=lambda: {"rows_out": (int, "rows in the result")})
    image: str = "pipeline"
    lists: tuple[str, ...] = ()


GIVEN = "given_manifest"
"""The manifest artifact of the task that found what a stage is given in place of its result."""


def lineage(option: str) -> str:
    """Return the name of the manifest artifact beside an option that takes another stage's result."""
    return f"{option.removesuffix('_path')}_manifest"


def artifact_path(uri: str) -> Path:
    """Return where the launcher looks for an output artifact (and puts an input artifact)."""
    head, separator, rest = uri.partition("://")
    if not separator:
        return Path(uri)
    if head == "file":
        return storage.local_path(uri)
    if head not in _MOUNTS:
        raise UsageError("the launcher does not mount this scheme", where=uri, expected=", ".join(_MOUNTS))
    return Path(_MOUNTS[head]) / rest


class ExecutorInput(NamedTuple):
    """The inputs and outputs of one task, as the launcher gives them.

    Args:
        parameters: that are passed one by one.
        options: that are passed together (:data:`OPTIONS`).
        defaults: of the parameters that are handed on (:data:`DEFAULTS`); None: nothing is.
        output_parameters: files by name.
        output_artifacts: URIs by name.
        output_file: the executor output.
    """

    parameters: dict[str, Any]
    options: dict[str, Any]
    defaults: dict[str, Any] | None
    output_parameters: dict[str, Path]
    output_artifacts: dict[str, str]
    output_file: Path

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> Self:
        """Parse the arguments after the flag.

        Raises:
            UsageError: not the JSON object that the launcher passes.
        """
        expected = "the JSON object of {{$}}, alone"
        if len(arguments) != 1:
            raise UsageError("takes one value", where=FLAG, got=f"{len(arguments)} values", expected=expected)
        try:
            raw = json.loads(arguments[0])
            outputs = raw["outputs"]
            # If a pipeline builds a text from an upstream output, that output is among the values as well.
            given = {
                name: value
                for name, value in raw.get("inputs", {}).get("parameterValues", {}).items()
                if not name.startswith("pipelinechannel--")
            }
            options, defaults = dict(given.pop(OPTIONS, {})), given.pop(DEFAULTS, None)
            return cls(
                parameters=given,
                options=options,
                defaults=None if defaults is None else dict(defaults),
                output_parameters={
                    name: Path(item["outputFile"]) for name, item in outputs.get("parameters", {}).items()
                },
                output_artifacts={
                    name: item["artifacts"][0]["uri"] for name, item in outputs.get("artifacts", {}).items()
                },
                output_file=Path(outputs["outputFile"]),
            )
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise UsageError("not a valid executor input", where=FLAG, got=repr(error), expected=expected) from error

    def given(self, known: Collection[str]) -> dict[str, Any]:
        """Return the options of a stage: what is passed one by one, and of what is passed together those that it knows.

        Args:
            known: names of its options.
        """
        together = {name: value for name, value in self.options.items() if name in known}
        hands_on = self.defaults is not None
        return together | {name: value for name, value in self.parameters.items() if name in known or not hands_on}

    def handed_on(self, known: Collection[str]) -> dict[str, Any]:
        """Return the parameters that the task hands on: what its stage does not know, or :data:`DEFAULTS` name.

        Those that are the default are left out; of one that is not named there the default is empty, 0 or false.
        """
        if self.defaults is None:
            return {}
        return {
            name: value
            for name, value in self.parameters.items()
            if (value != self.defaults[name] if name in self.defaults else value and name not in known)
        }

    def write(
        self,
        parameters: Mapping[str, Value],
        metrics: Mapping[str, float],
        report: Report,
        manifest: bytes,
        metadata: Mapping[str, str | float],
    ) -> None:
        """Write every declared output, and the executor output that repeats them.

        On a cluster the executor output wins, locally the parameter file: they are identical. Only artifact metadata
        brings metrics to the interface. Metadata has no null, on which the launcher fails, and no nesting, which it
        mangles.
        """
        contents: dict[str, tuple[bytes, Mapping[str, Any]]] = {
            MANIFEST: (manifest, dict(metadata)),
            METRICS: (json.dumps(dict(metrics), indent=1).encode(), dict(metrics)),
            # A task of a pipeline puts out no manifest, which is a file of its folder.
            REPORT: (report.html().encode(), dict(metadata)),
        }
        self.put(parameters, contents)

    def put(self, parameters: Mapping[str, Value], contents: Mapping[str, tuple[bytes, Mapping[str, Any]]]) -> None:
        """Write every declared output: values of parameters, bytes and metadata of artifacts."""
        values: dict[str, Value] = {}
        for name, path in self.output_parameters.items():
            if name not in parameters:
                expected = ", ".join(parameters)
                raise UsageError("the component declares an unknown output", where=name, expected=expected)
            value = values[name] = parameters[name]
            _put(path, (json.dumps(value) if isinstance(value, list | dict) else str(value)).encode())
        artifacts: dict[str, Any] = {}
        for name, uri in self.output_artifacts.items():
            if name not in contents:
                continue  # executor-logs is the launcher's own
            data, fields = contents[name]
            _put(artifact_path(uri), data)
            artifacts[name] = {"artifacts": [{"name": name, "uri": uri, "metadata": fields}]}
        _put(self.output_file, json.dumps({"parameterValues": values, "artifacts": artifacts}).encode())


def adopt_secrets(top: Path = Path("/")) -> None:
    """Set the variables that the mounted secrets have and the environment lacks.

    Args:
        top: folder below which they are mounted.
    """
    for name, place in _VARIABLES.items():
        file = top / place.lstrip("/")
        if name not in os.environ and file.is_file():
            os.environ[name] = file.read_text(encoding="utf-8")


def _put(path: Path, data: bytes) -> None:
    # On a cluster the parents exist; under kfp.local they do not.
    os.makedirs(path.parent, exist_ok=True)
    path.write_bytes(data)
