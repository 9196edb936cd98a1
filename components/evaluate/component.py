"""Ask a trained model the questions of benchmarks, and measure its loss on held-out rows."""

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
def evaluate(
    root: str,
    model: str,
    output: dsl.OutputPath(str),
    fingerprint: dsl.OutputPath(str),
    rows_out: dsl.OutputPath(int),
    manifest: dsl.Output[dsl.Dataset],
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
    workers: int = 1,
    share: str = "",
    finish: bool = False,
    verify: bool = False,
    fail_on: str = "",
    links: str = "skip",
    tokenizer: str = "",
    benchmarks: str = "",
    scorings: str = "",
    data: str = "",
    held_out: str = "",
    samples_path: str = "/dev/shm/pairmill/{fingerprint}",
    training: str = "",
    evaluate_config: str = "default",
    set: str = "",
    run_only: str = "",
    model_manifest: dsl.Input[dsl.Dataset] = None,
    held_out_manifest: dsl.Input[dsl.Dataset] = None,
    training_manifest: dsl.Input[dsl.Dataset] = None,
) -> dsl.ContainerSpec:
    """Ask a trained model the questions of benchmarks, and measure its loss on held-out rows.

    Documentation: components/evaluate/README.md

    Args:
        root: project folder or URI; results go to <root>/<stage>/<fingerprint>
        model: a finished run of train, a folder that its export wrote, or the URL of a server of OpenAI's protocol
        output: URI of the finished folder
        fingerprint: identity of its content
        rows_out: rows in the result
        manifest: what the folder holds, and what became of every row
        metrics: numbers to compare between runs
        report: report for people
        workers: processes on this machine, each of which loads the model; 0 = one per available core
        share: run this share of the shards, as in 2/7, together with the other shares, and do not finish; auto = the
            place in the array job (Slurm), auto/7 of one that does not say its size (Kubernetes); empty = run all and
            finish
        finish: with share=: finish once the shards of all shares are done; one share has it, of share=auto the first
        verify: read earlier results and inputs in full instead of trusting their sizes; damaged results are redone
        fail_on: alarms that fail the stage before a result is committed, of vanished, unmatched_task, unmatched_rule,
            two_rules, unmatched_source, links; empty = they are warnings
        links: symbolic links in folders that are listed: skip leaves them out with a warning, follow reads what they
            lead to, refuse fails the stage
        tokenizer: tokenizer.json of the data, for a run of train that was trained without; of a server, the one that it
            has to have; empty = that of the model
        benchmarks: names of benchmarks, or lm_eval/<task>, joined by commas; empty = held-out loss alone
        scorings: which readings of an answer count, of strict and lenient: the first that a benchmark has is its
            figure, the others are beside it; empty = what docs/evaluation.md says of each benchmark
        data: where data of benchmarks are, as gsm8k=<a file, a folder, or owner/name@revision of the Hub>; others are
            read from the Hub
        held_out: a held-out sampled folder, or its plan, for the loss of a run of train; empty = none
        samples_path: local folder beside which the arrays of a plan of held-out rows are made, as of train
        training: rows that the model was trained on, joined by commas: questions that are among them are scored apart
        evaluate_config: generation, prompts and profile, as a YAML file; default = what is built in, as in
            configs/evaluate_config.yaml
        set: settings in place of the file's, as generation.max_tokens=64,limit=100
        run_only: of benchmarks, only these; empty = all
        model_manifest: manifest of the stage that made model, for lineage
        held_out_manifest: manifest of the stage that made held_out, for lineage
        training_manifest: manifest of the stage that made training, for lineage
    """
    return dsl.ContainerSpec(
        image=IMAGE,
        command=["python", "-m", "pairmill", "stage", "evaluate"],
        args=["--executor-input", dsl.PIPELINE_TASK_EXECUTOR_INPUT_PLACEHOLDER],
    )


if __name__ == "__main__":
    compiler.Compiler().compile(evaluate, __file__.replace(".py", ".yaml"))
