"""The pipeline, and nothing else: which stage feeds which."""

# No postponed annotations here: kfp reads the signature's types themselves.
from kfp import dsl

from components.clean.component import clean
from components.clean.config import CleanConfig
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
    raw: str,
    root: str,
    sources: str = default(CleanConfig, "sources"),
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
        raw: folder or URI that holds one folder of raw files per source.
        root: project folder or URI; every result goes below it.
        sources: sources to clean, joined by commas, or all.
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
    cleaned = clean(
        root=root, raw=raw, sources=sources, max_reject_fraction=max_reject_fraction, profile=profile
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
