"""Train a byte-level tokenizer on rows."""

import os

from kfp import compiler, dsl

# The name by which kubeflow/pipelines-components finds what its READMEs tell of.
from kfp.dsl import container_component as component

IMAGE = os.environ.get(
    "PAIRMILL_IMAGE",
    "registry.invalid/pairmill/pipeline@sha256:0000000000000000000000000000000000000000000000000000000000000000",
)
"""The image of pipeline, by digest: docs/components.md says how it is built."""


@component
def train_tokenizer(
    root: str,
    rows: str,
    output: dsl.OutputPath(str),
    fingerprint: dsl.OutputPath(str),
    rows_out: dsl.OutputPath(int),
    manifest: dsl.Output[dsl.Dataset],
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
    workers: int = 0,
    share: str = "",
    finish: bool = False,
    verify: bool = False,
    fail_on: str = "",
    links: str = "skip",
    profile: str = "pairmill",
    max_record_bytes: int = 67108864,
    max_expansion: int = 1000,
    policy: str = "",
    policy_on: str = "refuse",
    tokenized: str = "",
    tokenizer: str = "",
    vocab_size: int = 65536,
    special_tokens: str = "<|PAD|>,<|direct|>,<|cot|>,<|noisy|>,<|synth|>,<|endoftext|>,<|im_start|>,<|im_end|>,<|object_ref_start|>,<|object_ref_end|>,<|box_start|>,<|box_end|>,<|quad_start|>,<|quad_end|>,<|vision_start|>,<|vision_end|>,<|vision_pad|>,<|image_pad|>,<|video_pad|>,<|fim_prefix|>,<|fim_middle|>,<|fim_suffix|>,<|fim_pad|>,<|repo_name|>,<|file_sep|>,<tool_call>,</tool_call>,<tool_response>,</tool_response>,<think>,</think>",
    tokenizer_type: str = "bpe",
    truncate_len: int = 10000,
    prefix_config_path: str = "prefix_config.yaml",
    limit_mul_factor: int = 10,
    seed: int = 0,
    evaluate: bool = True,
    rows_manifest: dsl.Input[dsl.Dataset] = None,
    given_manifest: dsl.Input[dsl.Dataset] = None,
) -> dsl.ContainerSpec:
    """Train a byte-level tokenizer on rows.

    Documentation: components/train_tokenizer/README.md

    Args:
        root: project folder or URI; results go to <root>/<stage>/<fingerprint>
        rows: folders or URIs of rows (.jsonl, .parquet), joined by commas
        output: URI of the finished folder
        fingerprint: identity of its content
        rows_out: rows in the result
        manifest: what the folder holds, and what became of every row
        metrics: numbers to compare between runs
        report: report for people
        workers: processes on this machine; 0 = one per available core
        share: run this share of the shards, as in 2/7, together with the other shares, and do not finish; auto = the
            place in the array job (Slurm), auto/7 of one that does not say its size (Kubernetes); empty = run all and
            finish
        finish: with share=: finish once the shards of all shares are done; one share has it, of share=auto the first
        verify: read earlier results and inputs in full instead of trusting their sizes; damaged results are redone
        fail_on: alarms that fail the stage before a result is committed, of vanished, unmatched_task, unmatched_rule,
            two_rules, unmatched_source, links; empty = they are warnings
        links: symbolic links in folders that are listed: skip leaves them out with a warning, follow reads what they
            lead to, refuse fails the stage
        profile: pairmill, or data_io for the reference's bytes, defects included
        max_record_bytes: longest record that is read, in bytes; a longer one fails the stage, because memory use
            depends on it
        max_expansion: most bytes of records for each byte of their file, beyond 256 MiB; more fails the stage: a file
            of a kilobyte can hold gigabytes
        policy: policy.yaml: which sources, files and licences are allowed, denied, held or for evaluation only
            (docs/policy.md); empty = all are allowed
        policy_on: what becomes of data that policy= does not allow: refuse fails the stage, leave_out goes on without
            it
        tokenized: tokenized folder that exists, in place of all that is before sample: tokenize passes it on, and no
            stage has anything to do
        tokenizer: tokenizer that exists (a tokenizer.json, or a folder or URI with one): passed on, and none is trained
        vocab_size: size of the vocabulary, special tokens and alphabet included
        special_tokens: tokens with the ids 0, 1, …, joined by commas
        tokenizer_type: the model: bpe. unigram, which data_io has, is refused: its trainer gives other bytes each time
        truncate_len: characters to read of each text
        prefix_config_path: the sampler's rules; max_per_file limits how much of a file is read
        limit_mul_factor: rows to read of a file = this times its max_per_file (data_io: texts, not rows)
        seed: seed of the random sample of files over that limit
        evaluate: train a second time without one row in 100, and measure on those rows; the tokenizer does not change
        rows_manifest: manifest of the stage that made rows, for lineage
        given_manifest: manifest of the stage that found what is given, for lineage
    """
    return dsl.ContainerSpec(
        image=IMAGE,
        command=["python", "-m", "pairmill", "stage", "train_tokenizer"],
        args=["--executor-input", dsl.PIPELINE_TASK_EXECUTOR_INPUT_PLACEHOLDER],
    )


if __name__ == "__main__":
    compiler.Compiler().compile(train_tokenizer, __file__.replace(".py", ".yaml"))
