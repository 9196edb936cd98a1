"""Find and remove duplicates, leaks of benchmarks and poor rows."""

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
def curate(
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
    rows: str = "",
    curate_config: str = "default",
    index: str = "",
    write_index: bool = False,
    raw: str = "",
    rows_manifest: dsl.Input[dsl.Dataset] = None,
    raw_manifest: dsl.Input[dsl.Dataset] = None,
) -> dsl.ContainerSpec:
    """Find and remove duplicates, leaks of benchmarks and poor rows.

    Documentation: components/curate/README.md

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
        rows: folders or URIs of rows (.jsonl, .parquet), joined by commas
        curate_config: what each operation does, as a YAML file; default = what is built in, as in
            configs/curate_config.yaml
        index: finished folder of an earlier run with an index/: its rows rank before all of these, and stay
        write_index: write index/ for the index= of a later run
        raw: what fetch printed: where the withheld splits of our own sources are that decontaminate.withheld names
        rows_manifest: manifest of the stage that made rows, for lineage
        raw_manifest: manifest of the stage that made raw, for lineage
    """
    return dsl.ContainerSpec(
        image=IMAGE,
        command=["python", "-m", "pairmill", "stage", "curate"],
        args=["--executor-input", dsl.PIPELINE_TASK_EXECUTOR_INPUT_PLACEHOLDER],
    )


if __name__ == "__main__":
    compiler.Compiler().compile(curate, __file__.replace(".py", ".yaml"))
