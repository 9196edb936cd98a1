"""The pipeline, and nothing else: which stage feeds which."""

# No postponed annotations here: kfp reads the signature's types themselves.
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


@dsl.pipeline(
    name="pairmill-pretraining",
    description="Raw instruction data to the rows that a PrefixLM trainer reads.",
)
def pretraining(
    root: str,
    raw: str = default(FetchConfig, "raw"),
    sources: str = default(FetchConfig, "sources"),
    source_options: str = default(CleanConfig, "source_options"),
    max_reject_fraction: float = default(CleanConfig, "max_reject_fraction"),
    vocab_size: int = default(TrainTokenizerConfig, "vocab_size"),
    prefix_config_path: str = default(SampleConfig, "prefix_config_path"),
    epochs: int = default(SampleConfig, "epochs"),
    context_size: int = default(SampleConfig, "context_size"),
    min_resp_length: int = default(SampleConfig, "min_resp_length"),
    seed: int = default(SampleConfig, "seed"),
    output_path: str = "",
    profile: str = default(CleanConfig, "profile"),
) -> None:
    """Every stage, from raw files to epochs.

    Args:
        root: project folder or URI; every result goes below it.
        raw: folder or URI with raw files that are there already, one folder per source; other sources are fetched.
        sources: sources to train on, by name or as YAML files, joined by commas; all = every one that has a folder in
            raw, or without raw every known one.
        source_options: options of single sources, as source.option=value, joined by commas.
        max_reject_fraction: malformed rows of a source that are put aside, as a fraction; more fail the run.
        vocab_size: size of the vocabulary, special tokens and alphabet included.
        prefix_config_path: rules that say how much of each task is sampled.
        epochs: number of epochs.
        context_size: longest row in tokens, one more than the trainer's context.
        min_resp_length: shortest response in tokens, its end token included.
        seed: seed of every random draw.
        output_path: folder for the sampled arrays; empty on a cluster, where the nodes make them.
        profile: pairmill, or data_io for the reference's bytes.
    """
    # Kubeflow's cache never looks whether data behind a URI changed or is still there; every stage does, and a stage
    # whose result stands already ends in about a second. docs/decisions/0003-kubeflow-cache-off.md
    fetched = fetch(root=root, raw=raw, sources=sources).set_caching_options(False)
    cleaned = clean(
        root=root,
        raw=fetched.outputs["output"],
        raw_manifest=fetched.outputs["manifest"],
        sources=sources,
        source_options=source_options,
        max_reject_fraction=max_reject_fraction,
        profile=profile,
    ).set_caching_options(False)
    trained = train_tokenizer(
        root=root,
        rows=cleaned.outputs["output"],
        rows_manifest=cleaned.outputs["manifest"],
        vocab_size=vocab_size,
        prefix_config_path=prefix_config_path,
        seed=seed,
        profile=profile,
    ).set_caching_options(False)
    tokenized = tokenize(
        root=root,
        rows=cleaned.outputs["output"],
        rows_manifest=cleaned.outputs["manifest"],
        tokenizer=trained.outputs["output"],
        tokenizer_manifest=trained.outputs["manifest"],
        profile=profile,
    ).set_caching_options(False)
    sample(
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
    ).set_caching_options(False)
