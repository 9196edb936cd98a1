"""Plan how many response tokens of each source the training has, epoch by epoch."""

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
def mix(
    root: str,
    tokenized_path: str,
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
    tasks: str = "",
    rows: str = "",
    mix_config: str = "default",
    prefix_config_path: str = "prefix_config.yaml",
    epochs: int = 10,
    context_size: int = 4097,
    min_resp_length: int = 2,
    seed: int = 0,
    policy: str = "",
    policy_on: str = "refuse",
    compare: str = "",
    profile: str = "pairmill",
    tokenized_manifest: dsl.Input[dsl.Dataset] = None,
    rows_manifest: dsl.Input[dsl.Dataset] = None,
) -> dsl.ContainerSpec:
    """Plan how many response tokens of each source the training has, epoch by epoch.

    Documentation: components/mix/README.md

    Args:
        root: project folder or URI; results go to <root>/<stage>/<fingerprint>
        tokenized_path: tokenized folder or URI; several as name=folder,name=folder
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
        tasks: which tasks of tokenized_path are taken and what rules call them, as a YAML file; empty = all, by their
            own names
        rows: the rows that were tokenized, joined by commas; only attributes beside them are read, for buckets
        mix_config: the method, the budget and the caps, as a YAML file; default = what is built in, as in
            configs/mix_config.yaml
        prefix_config_path: the sampler's rules, of which long_context is read
        epochs: number of epochs, unless each phase says its own
        context_size: longest row in tokens, one more than the trainer's context
        min_resp_length: shortest response in tokens, its end token included
        seed: seed of the sampler's draws
        policy: policy.yaml: which sources, files and licences are allowed, denied, held or for evaluation only
            (docs/policy.md); empty = all are allowed
        policy_on: what becomes of data that policy= does not allow: refuse fails the stage, leave_out goes on without
            it
        compare: an earlier mixture (a folder, file or URI) to show beside this one; empty = none
        profile: pairmill, or data_io: the reference has no mixtures, so none is made
        tokenized_manifest: manifest of the stage that made tokenized_path, for lineage
        rows_manifest: manifest of the stage that made rows, for lineage
    """
    return dsl.ContainerSpec(
        image=IMAGE,
        command=["python", "-m", "pairmill", "stage", "mix"],
        args=["--executor-input", dsl.PIPELINE_TASK_EXECUTOR_INPUT_PLACEHOLDER],
    )


if __name__ == "__main__":
    compiler.Compiler().compile(mix, __file__.replace(".py", ".yaml"))
