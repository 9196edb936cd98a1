"""Bring raw data to the project, at locked revisions, with digests and licences."""

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
def fetch(
    root: str,
    output: dsl.OutputPath(str),
    fingerprint: dsl.OutputPath(str),
    given_rows: dsl.OutputPath(str),
    given_tokenizer: dsl.OutputPath(str),
    given_tokenized: dsl.OutputPath(str),
    manifest: dsl.Output[dsl.Dataset],
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
    workers: int = 8,
    share: str = "",
    finish: bool = False,
    verify: bool = False,
    fail_on: str = "",
    links: str = "skip",
    sources: str = "",
    rows: str = "",
    tokenizer: str = "",
    tokenized: str = "",
    template: str = "",
    raw: str = "",
    lock: str = "",
    select_config: str = "default",
    curate_config: str = "default",
    mix_config: str = "default",
    prefix_config_path: str = "prefix_config.yaml",
    train_config: str = "default",
    update: str = "",
    limit: int = 0,
    policy: str = "",
    policy_on: str = "refuse",
) -> dsl.ContainerSpec:
    """Bring raw data to the project, at locked revisions, with digests and licences.

    Documentation: components/fetch/README.md

    Args:
        root: project folder or URI; results go to <root>/<stage>/<fingerprint>
        output: URI of the finished folder
        fingerprint: identity of its content
        given_rows: finished rows that were given, where later stages read them; joined by commas, empty for none
        given_tokenizer: the tokenizer that was given, where later stages read it; empty for none
        given_tokenized: the tokenized folder that was given, where later stages read it; empty for none
        manifest: what the folder holds, and what became of every row
        metrics: numbers to compare between runs
        report: report for people
        workers: downloads at the same time; 0 = one per available core
        share: run this share of the shards, as in 2/7, together with the other shares, and do not finish; auto = the
            place in the array job (Slurm), auto/7 of one that does not say its size (Kubernetes); empty = run all and
            finish
        finish: with share=: finish once the shards of all shares are done; one share has it, of share=auto the first
        verify: read earlier results and inputs in full instead of trusting their sizes; damaged results are redone
        fail_on: alarms that fail the stage before a result is committed, of vanished, unmatched_task, unmatched_rule,
            two_rules, unmatched_source, links; empty = they are warnings
        links: symbolic links in folders that are listed: skip leaves them out with a warning, follow reads what they
            lead to, refuse fails the stage
        sources: sources to fetch, by name or as YAML files that describe one; all = every one that has a folder in raw,
            or without raw every known one; empty = all, or none with rows= or tokenized=
        rows: finished rows in place of sources, or beside those that sources= names: folders, URIs of buckets,
            hf://datasets/owner/name@revision/path; joined by commas
        tokenizer: tokenizer in place of a trained one: a tokenizer.json, a folder, the URI of a bucket,
            hf://owner/name@revision, or git+https://repository@revision#path
        tokenized: tokenized folder in place of everything before sample: a folder, the URI of a bucket, or
            hf://datasets/owner/name@revision/path
        template: the template of tokenize, whose tokens the tokenizer must have; empty = not checked
        raw: folder or URI with raw files that you have, one folder per source; they are used as they are
        lock: file with the revision of each source, written at its first fetch; empty = <root>/sources.lock.yaml
        select_config: the file of the select stage, looked at if it is a URI
        curate_config: the file of the curate stage, looked at if it is a URI
        mix_config: the file of the mix stage, looked at if it is a URI
        prefix_config_path: rules of sample, looked at if they are a URI
        train_config: the file of a training, looked at if it is a URI
        update: sources whose lock is moved to the revision that is published now, or rows, tokenizer, tokenized; all =
            every one
        limit: fetch an extract instead: the first this many records of each source; 0 = everything
        policy: policy.yaml: which sources, files and licences are allowed, denied, held or for evaluation only
            (docs/policy.md); empty = all are allowed
        policy_on: what becomes of data that policy= does not allow: refuse fails the stage, leave_out goes on without
            it
    """
    return dsl.ContainerSpec(
        image=IMAGE,
        command=["python", "-m", "pairmill", "stage", "fetch"],
        args=["--executor-input", dsl.PIPELINE_TASK_EXECUTOR_INPUT_PLACEHOLDER],
    )


if __name__ == "__main__":
    compiler.Compiler().compile(fetch, __file__.replace(".py", ".yaml"))
