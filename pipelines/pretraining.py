"""The pipeline, and nothing else: which stage feeds which."""

# No postponed annotations here: kfp reads the signature's types themselves.
import functools
import inspect
from typing import Any

from kfp import dsl

from components.clean.component import clean
from components.clean.config import CleanConfig
from components.fetch.component import fetch
from components.fetch.config import FetchConfig
from components.sample.component import sample
from components.sample.config import SampleConfig
from components.tokenize.component import tokenize
from components.train_tokenizer.component import train_tokenizer
from components.train_tokenizer.config import TrainTokenizerConfig
from pairmill.kfp import default
from pipelines.placement import Placement

NAME = "pairmill-pretraining"
_PURPOSE = "Raw instruction data to the rows that a PrefixLM trainer reads."
# Kubeflow's form lists parameters by the alphabet and without their descriptions: the pipeline's own has both.
_GROUPS = {
    "Project": ("root", "profile", "workers"),
    "Data": ("raw", "sources", "source_options", "max_reject_fraction", "max_record_bytes"),
    "Tokenizer": ("vocab_size",),
    "Sample": ("prefix_config_path", "epochs", "context_size", "min_resp_length", "seed", "output_path"),
}
_PAGES = {"Operating it": "docs/operations.md", "Sources": "docs/sources.md", "What it writes": "docs/format.md"}


def build(placement: Placement, *, fan_out: bool = False, docs: str = "") -> Any:
    """The pipeline as kfp knows it.

    Args:
        placement: what the cluster gives its tasks.
        fan_out: whether a parameter of the run, ``workers``, says how many pods share the work of a stage. Kubeflow
            cannot leave a loop out of a run, and an empty one costs a pod as well, so that the line without loops is
            another pipeline.
        docs: address below which the repository's files can be read, for links; empty = their paths alone.
    """
    signature = inspect.signature(_line)
    hidden = {"placement"} if fan_out else {"placement", "workers"}
    shown = [item for name, item in signature.parameters.items() if name not in hidden]
    function = functools.partial(_line, placement) if fan_out else functools.partial(_line, placement, workers=1)
    functools.update_wrapper(function, _line)
    function.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
    name, title = NAME, "Pretraining data"
    if fan_out:
        name, title = f"{NAME}-parallel", f"{title}, shared out over pods"
    description = _description({item.name for item in shown}, docs)
    return dsl.pipeline(function, name=name, display_name=title, description=description)


def _description(shown: set[str], docs: str) -> str:
    """What the interface shows beside the graph, in Markdown: the parameters by groups, and where to read on."""
    import docstring_parser

    texts = {item.arg_name: item.description for item in docstring_parser.parse(_line.__doc__ or "").params}
    lines = [_PURPOSE]
    for group, names in _GROUPS.items():
        lines.append(f"\n**{group}**\n")
        lines += [f"- `{name}`: {' '.join((texts[name] or '').split())}" for name in names if name in shown]
    pages = [f"[{title}]({docs.rstrip('/')}/{page})" if docs else f"{title}: {page}" for title, page in _PAGES.items()]
    return "\n".join([*lines, "", ", ".join(pages)])


def _line(
    placement: Placement,
    root: str,
    raw: str = default(FetchConfig, "raw"),
    sources: str = default(FetchConfig, "sources"),
    source_options: str = default(CleanConfig, "source_options"),
    max_reject_fraction: float = default(CleanConfig, "max_reject_fraction"),
    max_record_bytes: int = default(CleanConfig, "max_record_bytes"),
    vocab_size: int = default(TrainTokenizerConfig, "vocab_size"),
    prefix_config_path: str = default(SampleConfig, "prefix_config_path"),
    epochs: int = default(SampleConfig, "epochs"),
    context_size: int = default(SampleConfig, "context_size"),
    min_resp_length: int = default(SampleConfig, "min_resp_length"),
    seed: int = default(SampleConfig, "seed"),
    output_path: str = "",
    profile: str = default(CleanConfig, "profile"),
    workers: int = 4,
) -> None:
    """Every stage, from raw files to epochs.

    Args:
        root: project folder or URI; every result goes below it.
        raw: folder or URI with raw files that are there already, one folder per source; other sources are fetched.
        sources: sources to train on, by name or as YAML files, joined by commas; all = every one that has a folder in
            raw, or without raw every known one.
        source_options: options of single sources, as source.option=value, joined by commas.
        max_reject_fraction: malformed rows of a source that are put aside, as a fraction; more fail the run.
        max_record_bytes: longest record that is read; a longer one fails the run, because memory follows it.
        vocab_size: size of the vocabulary, special tokens and alphabet included.
        prefix_config_path: rules that say how much of each task is sampled.
        epochs: number of epochs.
        context_size: longest row in tokens, one more than the trainer's context.
        min_resp_length: shortest response in tokens, its end token included.
        seed: seed of every random draw.
        output_path: folder for the sampled arrays; empty on a cluster, where the nodes make them.
        profile: pairmill, or data_io for the reference's bytes.
        workers: pods that share the work of each of clean, train_tokenizer and tokenize.
    """
    # Where nothing is shared out it is the number 1 itself, else a parameter of the run, which only a task can list.
    alone = isinstance(workers, int)

    def placed(component: Any, suffix: str = "", **inputs: Any) -> Any:
        task = placement.apply(component(**inputs), component.name.replace("-", "_"))
        return task.set_display_name(component.name.replace("-", " ").capitalize() + suffix)

    fetched = placed(fetch, root=root, raw=raw, sources=sources, split=workers)

    def shared(component: Any, lineage: dict[str, Any], **inputs: Any) -> Any:
        # It finds the shares done; what one of them left undone it does itself.
        task = placed(component, **inputs, **lineage)
        if not alone:
            with dsl.ParallelFor(fetched.outputs["shares"], parallelism=placement.parallelism) as share:
                worker = placed(component, ": a share", **inputs, share=share)
            task.after(worker)
        return task

    cleaned = shared(
        clean,
        {"raw_manifest": fetched.outputs["manifest"]},
        root=root,
        raw=fetched.outputs["output"],
        sources=sources,
        source_options=source_options,
        max_reject_fraction=max_reject_fraction,
        profile=profile,
        max_record_bytes=max_record_bytes,
    )
    trained = shared(
        train_tokenizer,
        {"rows_manifest": cleaned.outputs["manifest"]},
        root=root,
        rows=cleaned.outputs["output"],
        vocab_size=vocab_size,
        prefix_config_path=prefix_config_path,
        seed=seed,
        profile=profile,
        max_record_bytes=max_record_bytes,
    )
    tokenized = shared(
        tokenize,
        {"rows_manifest": cleaned.outputs["manifest"], "tokenizer_manifest": trained.outputs["manifest"]},
        root=root,
        rows=cleaned.outputs["output"],
        tokenizer=trained.outputs["output"],
        profile=profile,
        max_record_bytes=max_record_bytes,
    )
    placed(
        sample,
        root=root,
        tokenized_path=tokenized.outputs["output"],
        tokenized_manifest=tokenized.outputs["manifest"],
        output_path=output_path,
        prefix_config_path=prefix_config_path,
        epochs=epochs,
        context_size=context_size,
        min_resp_length=min_resp_length,
        seed=seed,
        profile=profile,
    )


pretraining = build(Placement())
"""As it is compiled into the repository: what ``kfp dsl compile --py pipelines/pretraining.py`` looks for."""
