"""Train a net on a sampled folder, on flat token files, or on a data set of the Hub."""

import os

from kfp import compiler, dsl

# The name by which kubeflow/pipelines-components finds what its READMEs tell of.
from kfp.dsl import container_component as component

IMAGE = os.environ.get(
    "PAIRMILL_IMAGE_TRAINER",
    "registry.invalid/pairmill/trainer@sha256:0000000000000000000000000000000000000000000000000000000000000000",
)
"""The image of trainer, by digest: docs/components.md says how it is built."""


@component
def train(
    root: str,
    sampled: str,
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
    windows: str = "",
    hub: str = "",
    tokenizer: str = "",
    held_out: str = "",
    samples_path: str = "/dev/shm/pairmill/{fingerprint}",
    train_config: str = "default",
    set: str = "",
    policy: str = "",
    weights_from: str = "",
    weights: str = "ema",
    resume_from: str = "",
    processes: int = 0,
    device: str = "auto",
    price: float = 0.0,
    sampled_manifest: dsl.Input[dsl.Dataset] = None,
    held_out_manifest: dsl.Input[dsl.Dataset] = None,
) -> dsl.ContainerSpec:
    """Train a net on a sampled folder, on flat token files, or on a data set of the Hub.

    Documentation: components/train/README.md

    Args:
        root: project folder or URI; results go to <root>/<stage>/<fingerprint>
        sampled: a sampled folder, a node's folder with PLAN, or a plan of sample; several as name=path, with
            data.phases
        output: URI of the finished folder
        fingerprint: identity of its content
        rows_out: rows in the result
        manifest: what the folder holds, and what became of every row
        metrics: numbers to compare between runs
        report: report for people
        workers: processes on this machine; 0 = one per available core
        share: not of this stage, whose run is not shared out; torchrun or processes= starts several processes
        finish: with share=: finish once the shards of all shares are done; one share has it, of share=auto the first
        verify: read earlier results and inputs in full instead of trusting their sizes; damaged results are redone
        fail_on: alarms that fail the stage before a result is committed, of vanished, unmatched_task, unmatched_rule,
            two_rules, unmatched_source, links; empty = they are warnings
        links: symbolic links in folders that are listed: skip leaves them out with a warning, follow reads what they
            lead to, refuse fails the stage
        windows: folders of flat token files, such as windows of tokenize; several as name=path
        hub: a data set of the Hugging Face Hub, or a folder of its library
        tokenizer: tokenizer.json: required with hub, else for generation and export where the data lack it
        held_out: a folder to evaluate on: the held-out sample, or windows; empty = none
        samples_path: local folder in which the arrays of a plan are made; a last part {fingerprint} means the sample's
        train_config: net, optimizer, schedule and length, as a YAML file; default = what is built in, as in
            configs/train_config.yaml
        set: settings in place of the file's, as optimizer.lr=0.001,training.epochs=2
        policy: policy.yaml: a plan that was drawn before it took records out is refused (docs/removing.md)
        weights_from: begin with the weights of an earlier run or checkpoint, at step 1: fine-tuning; empty = new
            weights
        weights: what weights_from gives: ema (the average), current, or all: current ones with the optimizer's state
        resume_from: go on from checkpoints of the same run in another root, or of a run on the plan that this one
            extends; those of its own folder are found without it
        processes: processes on this machine, 0 = one per GPU, or 1; torchrun says it itself
        device: auto = a GPU if there is one
        price: price of a device for an hour, for the report; 0 = not known
        sampled_manifest: manifest of the stage that made sampled, for lineage
        held_out_manifest: manifest of the stage that made held_out, for lineage
    """
    return dsl.ContainerSpec(
        image=IMAGE,
        command=["python", "-m", "pairmill", "stage", "train"],
        args=["--executor-input", dsl.PIPELINE_TASK_EXECUTOR_INPUT_PLACEHOLDER],
    )


if __name__ == "__main__":
    compiler.Compiler().compile(train, __file__.replace(".py", ".yaml"))
