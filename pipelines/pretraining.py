"""The pipeline, and nothing else: which stage feeds which."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

from kfp import dsl

from pairmill.interface import kfp, launcher
from pipelines import parameters
from pipelines.placement import Placement
from pipelines.stages import EVERY, LAST, STAGES
from pipelines.tasks import documentation_of, short_stacks, signature_of

NAME = "pairmill-pretraining"
_PURPOSE = "Raw instruction data to the rows that a PrefixLM trainer reads."
# Kubeflow's form lists parameters by the alphabet and without their descriptions: the pipeline's own has both.
_GROUPS = {
    "Project": ("root", "profile", "workers"),
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
_GIVEN = {
    "raw": "output",
    "rows": "given_rows",
    "tokenizer": "given_tokenizer",
    "tokenized_path": "given_tokenized",
}
"""By an option that reads a result: the output of fetch that takes its place."""
_PURPOSE_OF_TRAINING = "Raw instruction data to a trained net."
_PAGES = {"Operating it": "docs/operations.md", "Sources": "docs/sources.md", "What it writes": "docs/format.md"}
_PAGE_OF_TRAINING = {"Training": "docs/training.md"}


def build(
    placement: Placement,
    *,
    image: str = "",
    fan_out: bool = False,
    docs: str = "",
    without: Collection[str] = (),
    trainer_image: str | None = None,
    samples_path: str = "",
) -> Any:
    """The pipeline as kfp knows it.

    Args:
        placement: what the cluster gives its tasks.
        image: of every stage; empty = that of the environment, or a placeholder.
        fan_out: whether the run has a parameter ``workers``, the number of pods that share the work of a stage. It is
            a pipeline of its own, because Kubeflow cannot leave a loop out of a run, and an empty one costs a pod.
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
    given = parameters.of(fan_out, train)
    signature = signature_of(given)

    def line(*values: Any) -> None:
        values_of = SimpleNamespace(**{"workers": 1, **signature.bind(*values).arguments})
        _line(placement, image, values_of, without, trainer_image, samples_path)

    # kfp reads both.
    line.__signature__ = signature  # type: ignore[attr-defined]
    line.__doc__ = documentation_of(given)
    name, title = NAME, "Pretraining data"
    if fan_out:
        name, title = f"{NAME}-parallel", f"{title}, shared out over pods"
    if train:
        name, title = f"{name}-train", f"{title}, and a training"
    with short_stacks():
        return dsl.pipeline(line, name=name, display_name=title, description=_description(given, docs))


def _description(given: type[Any], docs: str) -> str:
    """What the interface shows beside the graph, in Markdown: the parameters by groups, and where to read on."""
    # In Markdown <root> would be a tag.
    texts = {item.name: item.metadata["help"].replace("<", "&lt;") for item in dataclasses.fields(given)}
    lines = [_PURPOSE_OF_TRAINING if issubclass(given, parameters.Training) else _PURPOSE]
    for group, names in _GROUPS.items():
        if shown := [f"- `{name}`: {texts[name]}" for name in names if name in texts]:
            lines += [f"\n**{group}**\n", *shown]
    named = _PAGES | (_PAGE_OF_TRAINING if issubclass(given, parameters.Training) else {})
    pages = [f"[{title}]({docs.rstrip('/')}/{page})" if docs else f"{title}: {page}" for title, page in named.items()]
    return "\n".join([*lines, "", ", ".join(pages)])


def _line(
    placement: Placement,
    image: str,
    given: Any,
    without: Collection[str],
    trainer_image: str | None,
    samples_path: str,
) -> None:
    """Every stage; ``given`` has the parameters."""
    components = {name: kfp.component(stage, image) for name, stage in STAGES.items()}
    if trainer_image is not None:
        components |= {name: kfp.component(stage, trainer_image) for name, stage in LAST.items()}
    training = {"samples_path": samples_path} if samples_path else {}
    # Where nothing is shared out it is the number 1 itself, else a parameter of the run, which only a task can list.
    alone = isinstance(given.workers, int)

    def placed(stage: str, made: dict[str, Any], **inputs: Any) -> Any:
        """A task of a stage: it reads the outputs of the tasks in ``made``, and takes the parameters that it has."""
        # In place of the result of a stage that is left out, fetch has what was given.
        folders = {name: task.outputs["output"] for name, task in made.items() if task is not fetched}
        folders |= {name: task.outputs[_GIVEN[name]] for name, task in made.items() if task is fetched}
        # Neither a share nor a branch gets artifacts: no run of 2.17 that brought one into either is on record.
        # No task gets one twice.
        sharing, inside = "share" in inputs, bool({"share", "held_out"} & inputs.keys()) or stage in LAST
        makers = {} if inside else {task: name for name, task in reversed(made.items())}
        manifests = {launcher.lineage(name): task.outputs["manifest"] for task, name in makers.items()}
        if EVERY[stage].passes_on and not inside and fetched not in makers:
            manifests[launcher.GIVEN] = fetched.outputs["manifest"]
        inputs |= {name: fetched.outputs[f"given_{name}"] for name in parameters.entries(stage)}
        taken = {name: getattr(given, name) for name in parameters.taken(stage, training=trainer_image is not None)}
        task = placement.apply(components[stage](**taken, **folders, **manifests, **inputs), stage)
        return task.set_display_name(
            stage.replace("_", " ").capitalize() + (f": a share of round {inputs['round']}" if sharing else "")
        )

    fetched: Any = None
    fetched = placed("fetch", {}, split=given.workers)

    def shared(stage: str, **made: Any) -> Any:
        if stage in without:
            # Rows that it would choose from are those that it would give.
            return made["rows"] if stage in ("curate", "select") else fetched
        # It uses the shards that the shares finished, and runs the rest.
        task = placed(stage, made)
        workers: list[Any] = []
        for number in () if alone else STAGES[stage].config.shared_rounds:
            shares = fetched.outputs[f"{stage}_shares" if number == 1 else f"{stage}_later_shares"]
            with dsl.ParallelFor(shares, parallelism=placement.parallelism) as share:
                worker = placed(stage, made, share=share, round=number)
            workers.append(worker.after(*workers[-1:]))
        return task.after(*workers[-1:])

    cleaned = shared("clean", raw=fetched)
    curated = shared("curate", rows=cleaned, raw=fetched)
    selected = shared("select", rows=curated)
    trained = shared("train_tokenizer", rows=selected)
    tokenized = shared("tokenize", rows=selected, tokenizer=trained)
    planned = {} if "mix" in without else {"mixture": placed("mix", {"tokenized_path": tokenized, "rows": selected})}
    sampled = placed("sample", {"tokenized_path": tokenized, **planned})
    with dsl.If(given.holdout != ""):
        held_out = placed("sample", {"tokenized_path": tokenized}, held_out=True).set_display_name("Sample: held out")
        if trainer_image is not None:
            placed("train", {"sampled": sampled, "held_out": held_out}, **training)
    if trainer_image is not None:
        # A task outside cannot wait for one that may be skipped, so each branch has its own.
        with dsl.Else():
            placed("train", {"sampled": sampled}, **training)


pretraining = build(Placement())
"""As it is compiled into the repository: what ``kfp dsl compile --py pipelines/pretraining.py`` looks for."""
