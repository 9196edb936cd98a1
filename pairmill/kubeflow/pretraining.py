"""The line as a Kubeflow pipeline. Which stage feeds which is in ``table.LINE``."""

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, get_type_hints

from kfp import dsl

from pairmill.engine.options import WorkerSlice
from pairmill.interface import launcher
from pairmill.kubeflow.component import SHOWN, inputs_of, task_component
from pairmill.kubeflow.placement import Placement
from pairmill.kubeflow.pods import apply_job
from pairmill.kubeflow.tasks import short_stacks, signature_of
from pairmill.line import parameters
from pairmill.line.stages import EVERY, STAGES
from pairmill.line.table import LINE, Task, result_without

NAME = "pairmill-pretraining"
_PURPOSE = "Raw instruction data to the rows that a PrefixLM trainer reads."
# Kubeflow's form lists parameters by the alphabet and without their descriptions: the pipeline's own has both.
_GROUPS = {
    "Project": ("root", "profile"),
    "What vanishes, and what may come in": ("fail_on", "links", "unmatched", "policy", "policy_on"),
    "Data": (
        *("raw", "sources", "rows", "tokenized", "limit", "source_options", "turns", "holdout"),
        *("max_reject_fraction", "max_record_bytes", "on_long_record", "max_expansion"),
    ),
    "Curation": ("curate_config", "index", "write_index"),
    "Selection": ("select_config",),
    "Tokenizer": ("tokenizer", "template", "vocab_size", "windows"),
    "Mixture": ("mix_config", "compare"),
    "Sample": ("prefix_config_path", "epochs", "context_size", "min_resp_length", "seed", "output_path"),
    "Training": ("train_config", "set"),
}
_PURPOSE_OF_TRAINING = "Raw instruction data to a trained net."
_PAGES = {"Operating it": "docs/operations.md", "Sources": "docs/sources.md", "What it writes": "docs/format.md"}
_PAGE_OF_TRAINING = {"Training": "docs/training.md"}


def build(
    placement: Placement,
    *,
    image: str = "",
    workers: int = 1,
    fan_out: str = "tasks",
    docs: str = "",
    without: Collection[str] = (),
    trainer_image: str | None = None,
    samples_path: str = "",
) -> Any:
    """Make the pipeline that kfp compiles.

    Args:
        placement: what the cluster gives its tasks.
        image: of every stage; empty = that of the environment, or a placeholder.
        workers: pods that share the work of each of clean, curate, select, train_tokenizer and tokenize. They are tasks
            of the pipeline and no loop: each iteration of one would cost a pod and six nodes of the workflow more.
        fan_out: ``job``: they are pods of a Job, and the stage is one task that starts it.
        docs: address below which the repository's files can be read, for links; empty = their paths alone.
        without: stages to leave out, because every run of this pipeline is given their result (``rows=``,
            ``tokenizer=``, ``tokenized=``) or has them switched off. A pipeline for any run has them all: they pass on
            what is given.
        trainer_image: of a last task that trains on the sample; empty = a placeholder, None = there is no such task. It
            is a pipeline of its own too: for one that does not train, a skipped branch would cost a pod, and its form
            two parameters that do nothing.
        samples_path: where that task makes its arrays, or finds them; empty = in memory of its own.
    """
    train = trainer_image is not None
    given = parameters.parameters_class(train)
    signature = signature_of(given)

    def line(*values: Any) -> None:
        values_of = SimpleNamespace(**signature.bind(*values).arguments)
        _Line(
            placement=placement,
            image=image,
            given=values_of,
            workers=workers,
            by_job=fan_out == "job",
            without=without,
            trainer_image=trainer_image,
            samples_path=samples_path,
        ).define()

    # kfp reads both.
    line.__signature__ = signature  # type: ignore[attr-defined]
    line.__doc__ = str(given.__doc__)
    name, title = NAME, "Pretraining data"
    if workers > 1:
        how = "jobs" if fan_out == "job" else "parallel"
        name, title = f"{NAME}-{how}", f"{title}, shared out over pods"
    if train:
        name, title = f"{name}-train", f"{title}, and a training"
    with short_stacks():
        return dsl.pipeline(line, name=name, display_name=title, description=_description(given, docs))


def _description(given: type[Any], docs: str) -> str:
    """Return what the interface shows beside the graph, in Markdown: the parameters by groups, and where to read on."""
    # In Markdown <root> would be a tag.
    texts = {item.name: item.metadata["help"].replace("<", "&lt;") for item in dataclasses.fields(given)}
    lines = [_PURPOSE_OF_TRAINING if issubclass(given, parameters.Training) else _PURPOSE]
    for group, names in _GROUPS.items():
        if shown := [f"- `{name}`: {texts[name]}" for name in names if name in texts]:
            lines += [f"\n**{group}**\n", *shown]
    named = _PAGES | (_PAGE_OF_TRAINING if issubclass(given, parameters.Training) else {})
    pages = [f"[{title}]({docs.rstrip('/')}/{page})" if docs else f"{title}: {page}" for title, page in named.items()]
    return "\n".join([*lines, "", ", ".join(pages)])


@dataclass(frozen=True)
class _Line:
    """Every stage; ``given`` has the parameters.

    A task is passed ``options`` of fetch, all at once, and the places of what it reads. No manifest of another task is
    among its inputs: these would be a third of the workflow object, and the manifest in each folder names what it was
    made of.
    """

    placement: Placement
    image: str
    given: SimpleNamespace
    workers: int
    by_job: bool
    without: Collection[str]
    trainer_image: str | None
    samples_path: str
    handed: dict[str, Any] = field(default_factory=dict)
    """What fetch hands on to every other task."""

    def define(self) -> None:
        """Make the tasks of the table; those of held-out rows and of a training in branches."""
        first, *others = LINE
        fetched = self._fetch(first)
        self.handed[launcher.OPTIONS] = fetched.outputs[launcher.OPTIONS]
        results = {first.name: fetched.outputs["output"]}
        for task in others:
            if task.only_with:
                continue
            # A stage that would choose from rows and is left out gives what it would read.
            made = result_without(task, results) if task.stage in self.without else self._of_all_shares(task, results)
            if made is not None:
                results[task.name] = made
        sample_held_out, train = (task for task in LINE if task.only_with)
        with dsl.If(self.given.holdout != ""):
            apart = self._placed(sample_held_out, {**self.handed, **_options(sample_held_out, results)})
            if self.trainer_image is not None:
                self._train(train, {**results, sample_held_out.name: apart.outputs["output"]})
        if self.trainer_image is not None:
            # A task outside cannot wait for one that may be skipped, so each branch has its own.
            with dsl.Else():
                self._train(train, results)

    def _of_all_shares(self, task: Task, results: Mapping[str, Any]) -> Any:
        """Place a task and its shares, the first of which finishes it; return its output."""
        values = {**self.handed, **_options(task, results)}
        if task.shared and self.by_job:
            return self._placed(task, values, shares=self.workers).outputs["output"]
        first, *others = (WorkerSlice.all(self.workers) if task.shared else []) or [""]
        for share in others:
            self._placed(task, {**values, "share": share})
        finishing = {"share": first, "finish": True} if first else {}
        return self._placed(task, {**values, **finishing}).outputs["output"]

    def _fetch(self, task: Task) -> Any:
        taken = parameters.taken(task.stage, training=self.trainer_image is not None)
        values = {name: getattr(self.given, name) for name in taken}
        hints = get_type_hints(parameters.TrainingParameters)
        inputs = {**{name: hints[name] for name in values}, launcher.DEFAULTS: dict}
        component = task_component(STAGES[task.stage], self.image, inputs, {"output": str, launcher.OPTIONS: dict})
        placed = self.placement.apply(component(**values, **{launcher.DEFAULTS: parameters.defaults()}), task.stage)
        return placed.set_display_name(task.title)

    def _placed(self, task: Task, values: Mapping[str, Any], image: str | None = None, shares: int = 0) -> Any:
        """Place a task. One that only shares its work hands nothing on but its shards; ``shares`` are pods of a Job."""
        stage = EVERY[task.stage]
        alone = [key for key in values if key != launcher.OPTIONS]
        inputs = inputs_of(stage, alone) | ({launcher.OPTIONS: dict} if launcher.OPTIONS in values else {})
        is_share = "share" in values and "finish" not in values
        component = task_component(
            stage,
            self.image if image is None else image,
            inputs,
            {} if is_share else {"output": str},
            artifacts=() if is_share else SHOWN,
            name=f"{task.name}_share" if is_share else task.name,
        )
        title = f"{task.title}: share {values['share']}" if is_share else task.title
        made = component(**values)
        if shares:
            container = made.container_spec.image
            return apply_job(self.placement, made, task.stage, container, shares).set_display_name(title)
        return self.placement.apply(made, task.stage).set_display_name(title)

    def _train(self, task: Task, results: Mapping[str, Any]) -> None:
        values = {name: getattr(self.given, name) for name in parameters.taken(task.stage)}
        place = {"samples_path": self.samples_path} if self.samples_path else {}
        self._placed(task, {**values, **_options(task, results), **place}, self.trainer_image)


def _options(task: Task, results: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that a task is passed one by one. Of a stage that is left out there is no result."""
    read = {name: results[source] for name, source in task.reads.items() if source in results}
    return {**read, **task.options}


pretraining = build(Placement())
"""As it is compiled into the repository: what ``kfp dsl compile --py pipelines/pretraining.py`` looks for."""
