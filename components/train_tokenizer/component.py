"""The train_tokenizer stage as a Kubeflow component."""

# No postponed annotations here: kfp reads the signature's types themselves.
from kfp import dsl

from components.train_tokenizer.config import TrainTokenizerConfig
from pairmill.interface.kfp import container, default


@dsl.container_component
def train_tokenizer(
    root: str,
    rows: str,
    output: dsl.OutputPath(str),  # type: ignore[valid-type]
    fingerprint: dsl.OutputPath(str),  # type: ignore[valid-type]
    rows_out: dsl.OutputPath(int),  # type: ignore[valid-type]
    manifest: dsl.Output[dsl.Dataset],
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
    vocab_size: int = default(TrainTokenizerConfig, "vocab_size"),
    special_tokens: str = default(TrainTokenizerConfig, "special_tokens"),
    tokenizer_type: str = default(TrainTokenizerConfig, "tokenizer_type"),
    truncate_len: int = default(TrainTokenizerConfig, "truncate_len"),
    prefix_config_path: str = default(TrainTokenizerConfig, "prefix_config_path"),
    limit_mul_factor: int = default(TrainTokenizerConfig, "limit_mul_factor"),
    seed: int = default(TrainTokenizerConfig, "seed"),
    evaluate: bool = default(TrainTokenizerConfig, "evaluate"),
    profile: str = default(TrainTokenizerConfig, "profile"),
    max_record_bytes: int = default(TrainTokenizerConfig, "max_record_bytes"),
    workers: int = default(TrainTokenizerConfig, "workers"),
    share: str = default(TrainTokenizerConfig, "share"),
    verify: bool = default(TrainTokenizerConfig, "verify"),
    rows_manifest: dsl.Input[dsl.Dataset] = None,
) -> dsl.ContainerSpec:
    """Train a byte-level tokenizer on rows.

    Documentation: components/train_tokenizer/README.md

    Args:
        root: project folder or URI; results go to root/tokenizer/fingerprint.
        rows: folders or URIs of rows, joined by commas.
        rows_manifest: manifest of the stage that made the rows, for lineage.
        vocab_size: size of the vocabulary, special tokens and alphabet included.
        special_tokens: tokens with the ids 0, 1, …, joined by commas.
        tokenizer_type: bpe or unigram.
        truncate_len: characters kept of each text.
        prefix_config_path: the sampler's rules; max_per_file limits what is read of a file.
        limit_mul_factor: rows read of a file = this times its max_per_file.
        seed: seed of the random sample of files over that limit.
        evaluate: train a second time without one row in 100, and measure on those.
        profile: pairmill, or data_io for the reference's bytes.
        max_record_bytes: longest record that is read; a longer one fails the stage, because memory follows it.
        workers: processes in the pod; 0 = one per core.
        share: do only this share of the shards, as 2/7, and finish nothing; empty = all, and finish.
        verify: read what was made before and what is read, rather than trust sizes; what is damaged is made again.
        output: URI of the finished folder, with tokenizer.json.
        fingerprint: its content identity.
        rows_out: rows read.
        manifest: what the folder holds.
        metrics: numbers to compare between runs.
        report: what to look at.
    """
    return container("train_tokenizer")
