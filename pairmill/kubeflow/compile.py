"""Compiles the pipeline: ``pairmill compile [image=<name>@sha256:…] [output=<file>]``.

Without options it makes what CI diffs: below ``pipelines/compiled`` the pipeline of one pod a stage, the one whose
stages are shared out over pods, the one that ends in a training, the comparison of plans, the search and the
evaluation; and ``components/<stage>/component.yaml`` of every stage, for those who compose their own.
"""

import dataclasses
import hashlib
import json
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import yaml

from pairmill.engine.options import option
from pairmill.errors import UsageError
from pairmill.interface import cli
from pairmill.kubeflow.placement import Placement
from pairmill.line.stages import EVERY

COMPILED = "pipelines/compiled"

MAX_WORKERS, MAX_WORKERS_TRAINING = 4, 3
"""With more the workflow object of a run, or of one that trains, would pass ``weight.MAX_BYTES``."""
MAX_SHARES = 1000
"""Of a Job, which is one task whatever its size."""

FanOut = Literal["tasks", "job"]


def fan_out_option() -> Any:
    """Make the option that says what pods that share a stage are."""
    return option(
        "tasks",
        help=f"with workers=: tasks of the pipeline, or the pods of a Job that a task starts, at most {MAX_SHARES} "
        "(docs/operations.md says what that takes)",
    )


@dataclass(kw_only=True)
class ImageConfig(Placement):
    """What is compiled into a pipeline: its images, and what the cluster gives its tasks."""

    image: str = option("", help="image of every stage, by digest; empty = a placeholder that cannot be pulled")
    trainer_image: str = option(
        "", help="image of tasks that train, by digest; empty = a placeholder that cannot be pulled"
    )
    allow_tag: bool = option(False, help="accept an image without digest, for a cluster that has no registry")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("image", "trainer_image"):
            given = getattr(self, name)
            if given and "@sha256:" not in given and not self.allow_tag:
                raise UsageError(
                    "is not named by digest",
                    where=name,
                    got=given,
                    expected="name@sha256:…",
                    hint="a tag can move to a program that was not tested; allow_tag=true accepts it",
                )

    def placement(self) -> Placement:
        """Return the part that says what the cluster gives."""
        return Placement(**{item.name: getattr(self, item.name) for item in dataclasses.fields(Placement)})


def refuse_workers(count: int, train: bool, fan_out: FanOut = "tasks") -> None:
    """Raise UsageError if a stage cannot be shared out over this many pods."""
    most = MAX_SHARES if fan_out == "job" else MAX_WORKERS_TRAINING if train else MAX_WORKERS
    if fan_out == "job" and count == 1:
        raise UsageError("nothing to share", where="workers", got="1", expected=f"2 to {most} with fan_out=job")
    if not 1 <= count <= most:
        with_more = "a pod with more cores does more: cpu=16 memory=16Gi"
        raise UsageError(
            "out of range",
            where="workers",
            got=str(count),
            expected=f"1 to {most}{' with train=true' if train and fan_out != 'job' else ''}",
            hint=with_more
            if fan_out == "job"
            else "Argo compresses the workflow object of a run with more, and Kubeflow then shows no task any more; "
            f"fan_out=job takes up to {MAX_SHARES}, and {with_more}",
        )


@dataclass(kw_only=True)
class CompileConfig(ImageConfig):
    """Compile the pipeline to the YAML that Kubeflow takes."""

    output: str = option("", help=f"file to write; empty = all of {COMPILED}")
    workers: int = option(
        1,
        help="pods that share the work of each of clean, curate, select, train_tokenizer and tokenize, at most "
        f"{MAX_WORKERS} ({MAX_WORKERS_TRAINING} with train=true); 1 = the pipeline of one pod a stage",
    )
    fan_out: FanOut = fan_out_option()
    form: Literal["ir", "manifests"] = option(
        "ir", help="ir: what the UI and the SDK take; manifests: Pipeline and PipelineVersion objects, for GitOps"
    )
    train: bool = option(False, help="the pipeline whose last task trains on the sample: docs/training.md")
    version: str = option(
        "", help="with form=manifests, the name of the PipelineVersion; empty = the pipeline's name and a digest of it"
    )
    namespace: str = option("", help="with form=manifests, the namespace of both objects; empty = kubectl's")
    docs: str = option("", help="address below which this repository's files can be read, for links in descriptions")
    compare: bool = option(False, help="the pipeline that compares plans: docs/comparing.md")
    search: bool = option(False, help="the pipeline that searches a mixture: docs/searching.md")
    evaluate: bool = option(False, help="the pipeline that evaluates checkpoints as they appear: docs/evaluation.md")
    component: str = option("", help=f"a component alone, one of {', '.join(EVERY)}", choices=tuple(EVERY))

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_workers(self.workers, self.train, self.fan_out)
        asked = [name for name in ("search", "compare", "evaluate", "train", "component") if getattr(self, name)]
        asked += ["workers"] if self.workers > 1 else []
        if len(asked) > 1 and asked[0] in ("search", "compare", "evaluate"):
            raise UsageError("another pipeline", where=asked[0], got=f"{asked[1]} too", expected="one of them")
        if not self.output and (asked or self.form != "ir"):
            raise UsageError("is empty", where="output", expected="a file, because one of several forms is requested")


def run(config: CompileConfig, without: Collection[str] = ()) -> list[Path]:
    """Compile, with ``output`` a pipeline without these stages; returns the files."""
    if config.output:
        return [_written(Path(config.output), config, without)]
    return [_written(Path(item.output), item) for item in _committed(config)]


def _committed(config: CompileConfig) -> Iterator[CompileConfig]:
    """Yield the options that make each file of the repository."""
    yield dataclasses.replace(config, output=f"{COMPILED}/pretraining.yaml")
    yield dataclasses.replace(config, output=f"{COMPILED}/pretraining-parallel.yaml", workers=MAX_WORKERS)
    yield dataclasses.replace(config, output=f"{COMPILED}/pretraining-train.yaml", train=True)
    yield dataclasses.replace(config, output=f"{COMPILED}/search.yaml", search=True)
    yield dataclasses.replace(config, output=f"{COMPILED}/compare.yaml", compare=True)
    yield dataclasses.replace(config, output=f"{COMPILED}/evaluate.yaml", evaluate=True)
    for stage in EVERY:
        yield dataclasses.replace(config, output=f"components/{stage}/component.yaml", component=stage)


def _written(target: Path, config: CompileConfig, without: Collection[str] = ()) -> Path:
    from pairmill.kubeflow import compare, component, evaluate, pretraining, search  # kfp, which takes a second

    made: Any
    if config.component:
        stage = EVERY[config.component]
        made = component.component(stage, config.trainer_image if stage.image == "trainer" else config.image)
    elif config.compare or config.search or config.evaluate:
        module = compare if config.compare else search if config.search else evaluate
        made = module.build(
            config.placement(), image=config.image, trainer_image=config.trainer_image, docs=config.docs
        )
    else:
        made = pretraining.build(
            config.placement(),
            image=config.image,
            workers=config.workers,
            fan_out=config.fan_out,
            docs=config.docs,
            without=without,
            trainer_image=config.trainer_image if config.train else None,
        )
    content = _compiled(made)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content if config.form == "ir" else _manifests(made, content, config))
    return target


def _compiled(made: Any, **options: Any) -> bytes:
    from kfp import compiler

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pipeline.yaml"
        compiler.Compiler().compile(made, str(file), **options)
        return file.read_bytes()


def documents(compiled: bytes) -> list[dict[str, Any]]:
    """Return a compiled pipeline, and in a second document what belongs to its platform."""
    return list(yaml.load_all(compiled, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def digest(compiled: bytes) -> str:
    """sha256 of a compiled pipeline and its platform's document, independent of their YAML form."""
    return hashlib.sha256(json.dumps(documents(compiled), sort_keys=True).encode()).hexdigest()


def mark(compiled: bytes) -> str:
    """Return the description of a version, which identifies its content."""
    return f"sha256:{digest(compiled)}"


def _manifests(made: Any, content: bytes, config: CompileConfig) -> bytes:
    """Pipeline and PipelineVersion. A version is immutable: another content needs another name."""
    from kfp.compiler.compiler_utils import KubernetesManifestOptions

    name = config.version or f"{made.pipeline_spec.pipeline_info.name}-{digest(content)[:12]}"
    options = KubernetesManifestOptions(
        pipeline_version_name=name,
        pipeline_version_display_name=name,
        namespace=config.namespace or None,
        include_pipeline_manifest=True,
    )
    manifests = _compiled(made, kubernetes_manifest_format=True, kubernetes_manifest_options=options)
    pipeline, version = documents(manifests)
    version["spec"]["description"] = mark(content)
    return yaml.safe_dump_all([pipeline, version], sort_keys=True).encode()


def _printed(config: CompileConfig) -> str:
    return "".join(f"{path}\n" for path in run(config))


main = partial(cli.run_command, "compile", cli.Command(CompileConfig, _printed))
