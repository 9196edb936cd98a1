"""Encode rows into per-task token arrays."""

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
def tokenize(
    root: str,
    tokenizer: str,
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
    rows: str = "",
    tokens: str = "",
    template: str = "hrm",
    boq: str = "",
    eoq: str = "",
    eoa: str = "",
    conditions: str = "",
    boundary: str = "prefix_of_whole",
    context_size: int = 4097,
    min_response_tokens: int = 1,
    plain_marks: str = "",
    windows: bool = False,
    eod: str = "",
    rows_manifest: dsl.Input[dsl.Dataset] = None,
    tokenizer_manifest: dsl.Input[dsl.Dataset] = None,
    given_manifest: dsl.Input[dsl.Dataset] = None,
) -> dsl.ContainerSpec:
    """Encode rows into per-task token arrays.

    Documentation: components/tokenize/README.md

    Args:
        root: project folder or URI; results go to <root>/<stage>/<fingerprint>
        tokenizer: a tokenizer.json, a folder or URI that holds one, or hf://owner/name@revision of the Hub
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
        rows: folders or URIs of rows (.jsonl, .parquet), joined by commas
        tokens: folders or URIs of token files made elsewhere, beside rows= or in its place: .parquet with input_ids and
            labels, .bin with .idx of Megatron-LM
        template: how pairs are written: the name of a family, whose chat template renders them and whose tokens are
            boq, eoq, eoa and conditions (hrm, llama3, qwen, chatml, mistral, mistral_tekken, llama2, gemma, phi3, phi4,
            olmo, smollm, deepseek, gpt_oss, gpt2, neox); the path of a chat template (.jinja, tokenizer_config.json, a
            folder); rows = that of the rendered rows
        boq: token before a question; empty = the template's
        eoq: token after a question; empty = the template's
        eoa: token after an answer; empty = the template's
        conditions: tag=token for each condition tag, joined by commas; none = tags get no token; empty = the template's
        boundary: of rendered rows whose source does not say: prefix_of_whole = the ids of the whole begin with the
            prompt's, or the row is dropped; apart = such a row's prompt and rest are encoded apart
        context_size: of sources with long_prompt or long_answer: longest row in tokens, as sample has it
        min_response_tokens: tokens that the response of a rendered row has to have
        plain_marks: texts of a chat template that look like control tokens, as <|user|>, and are plain text here
        windows: also write flat token files, windows/<task>.npy, that Windows reads
        eod: with windows=true: token after a document, in place of eoa; empty = eoa
        rows_manifest: manifest of the stage that made rows, for lineage
        tokenizer_manifest: manifest of the stage that made tokenizer, for lineage
        given_manifest: manifest of the stage that found what is given, for lineage
    """
    return dsl.ContainerSpec(
        image=IMAGE,
        command=["python", "-m", "pairmill", "stage", "tokenize"],
        args=["--executor-input", dsl.PIPELINE_TASK_EXECUTOR_INPUT_PLACEHOLDER],
    )


if __name__ == "__main__":
    compiler.Compiler().compile(tokenize, __file__.replace(".py", ".yaml"))
