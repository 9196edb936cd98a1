"""Turn raw instruction data sets into rows {condition, instruction, response}."""

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
def clean(
    root: str,
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
    raw: str = "",
    sources: str = "",
    rows: str = "",
    source_options: str = "",
    holdout: str = "",
    max_reject_fraction: float = 0.001,
    on_long_record: str = "refuse",
    limit: int = 0,
    turns: str = "",
    raw_manifest: dsl.Input[dsl.Dataset] = None,
) -> dsl.ContainerSpec:
    """Turn raw instruction data sets into rows {condition, instruction, response}.

    Documentation: components/clean/README.md

    Args:
        root: project folder or URI; results go to <root>/<stage>/<fingerprint>
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
        raw: what fetch printed, or a folder or URI that holds one folder of raw files per source; empty where every
            source is a YAML file with files:
        sources: sources to clean, by name or as YAML files that describe one; all = every known one that is in raw;
            empty = all, or none with rows= or tokenized=
        rows: folders or URIs of finished rows, joined by commas: passed on beside what is cleaned, and not copied
        source_options: options of single sources, as <source>.<option>=<value>; listed at the end of --help
        holdout: rows for evaluation, kept apart from training: a fraction of the questions (0.01) or rows of each task
            (500); empty = none
        max_reject_fraction: largest fraction of malformed records in a source; they go to rejects/; more fail it
            (data_io: any)
        on_long_record: what becomes of a record of more than max_record_bytes: refuse fails the stage, reject puts it
            aside in rejects/ and counts it
        limit: read only the first this many records of each source; 0 = all, or all of the extract that fetch made
        turns: of chats: all, last or first, the answers that make rows, whatever YAML files say; empty = what they say
        raw_manifest: manifest of the stage that made raw, for lineage
    """
    return dsl.ContainerSpec(
        image=IMAGE,
        command=["python", "-m", "pairmill", "stage", "clean"],
        args=["--executor-input", dsl.PIPELINE_TASK_EXECUTOR_INPUT_PLACEHOLDER],
    )


if __name__ == "__main__":
    compiler.Compiler().compile(clean, __file__.replace(".py", ".yaml"))
