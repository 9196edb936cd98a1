"""Compare plans of sample: what differs between them, and which one trains the better net."""

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
def compare(
    root: str,
    plans: str,
    output: dsl.OutputPath(str),
    fingerprint: dsl.OutputPath(str),
    runs: dsl.OutputPath(list),
    manifest: dsl.Output[dsl.Dataset],
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
    workers: int = 0,
    share: str = "",
    finish: bool = False,
    verify: bool = False,
    fail_on: str = "",
    links: str = "skip",
    held_out: str = "",
    seeds: int = 4,
    first_seed: int = 0,
    budget: int = 0,
    budget_of: str = "response",
    set: str = "",
    train_config: str = "",
    evaluate_config: str = "",
    evaluate_set: str = "",
    benchmarks: str = "",
    data: str = "",
    max_runs: int = 0,
    trained: list = [],
    evaluated: list = [],
) -> dsl.ContainerSpec:
    """Compare plans of sample: what differs between them, and which one trains the better net.

    Documentation: components/compare/README.md

    Args:
        root: project folder or URI; results go to <root>/<stage>/<fingerprint>
        plans: plans of sample, the base first, as <plan> or name=<plan>; joined by commas
        output: URI of the finished folder
        fingerprint: identity of its content
        runs: the runs that the comparison needs: plan, seed, again, held_out and set of each
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
        held_out: held-out plan that all runs are evaluated on; of two tokenizers one for each, joined by commas
        seeds: runs of each plan: 4, 8, 16 and so on; a seed draws first weights, rows and their order
        first_seed: the first seed; others follow it
        budget: tokens that every run reads; 0 = nine tenths of what the smallest plan has
        budget_of: which tokens the budget counts: response, or all
        set: settings of every training, in place of the file's, as optimizer.lr=0.001
        train_config: settings of every training, as a YAML file, to check before anything is trained; empty = not
            checked
        evaluate_config: settings of every evaluation, to check with those of the trainings
        evaluate_set: settings in place of that file's
        benchmarks: benchmarks of the evaluations, to check their names
        data: where data of benchmarks are, to check that they are there
        max_runs: refuse more runs than this; 0 = any number
        trained: finished runs of train, in the order of the output runs; empty = what differs alone
        evaluated: their evaluations, in the same order
    """
    return dsl.ContainerSpec(
        image=IMAGE,
        command=["python", "-m", "pairmill", "stage", "compare"],
        args=["--executor-input", dsl.PIPELINE_TASK_EXECUTOR_INPUT_PLACEHOLDER],
    )


if __name__ == "__main__":
    compiler.Compiler().compile(compare, __file__.replace(".py", ".yaml"))
