"""Draw stratified epochs of a tokenized folder into a folder that a trainer maps."""

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
def sample(
    tokenized_path: str,
    output_path: str,
    root: str,
    output: dsl.OutputPath(str),
    fingerprint: dsl.OutputPath(str),
    rows_out: dsl.OutputPath(int),
    manifest: dsl.Output[dsl.Dataset],
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
    plan: str = "",
    layout: str = "auto",
    keep: int = 1,
    verify: bool = False,
    workers: int = 0,
    prefix_config_path: str = "prefix_config.yaml",
    rows: str = "",
    mixture: str = "",
    again: str = "",
    base: str = "",
    extend: str = "",
    from_epoch: int = 0,
    after: str = "",
    compose: str = "",
    seed: int = 0,
    epochs: int = 10,
    held_out: bool = False,
    context_size: int = 4097,
    min_resp_length: int = 2,
    profile: str = "pairmill",
    unmatched: str = "take",
    tasks: str = "",
    fail_on: str = "",
    links: str = "skip",
    policy: str = "",
    policy_on: str = "refuse",
    tokenized_manifest: dsl.Input[dsl.Dataset] = None,
    mixture_manifest: dsl.Input[dsl.Dataset] = None,
) -> dsl.ContainerSpec:
    """Draw stratified epochs of a tokenized folder into a folder that a trainer maps.

    Documentation: components/sample/README.md

    Args:
        tokenized_path: tokenized folder or URI, several as name=folder,name=folder; empty with a plan = what the plan
            names below root, with one those of its folders that are elsewhere
        output_path: local folder for the arrays; a last part {fingerprint} means the sample's; empty = plan only
        root: project folder or URI for plan and report; empty = none is kept
        output: URI of the finished folder
        fingerprint: identity of its content
        rows_out: rows in the result
        manifest: what the folder holds, and what became of every row
        metrics: numbers to compare between runs
        report: report for people
        plan: carry out this plan: its folder, or its fingerprint below root; empty = make one from the options
        layout: compact: sampled tokens only, in the smallest types; data_io: every token, as the reference; reference:
            no token, but where rows are in the tokenized folder, which pairmill's loader alone reads; auto = by profile
        keep: older samples to keep beside the one in output_path=…/{fingerprint}; others are removed
        verify: read earlier results and inputs in full instead of trusting their sizes; damaged results are redone
        workers: threads; 0 = one per available core, at most 32
        prefix_config_path: how much of each task is taken; not read with a plan
        rows: the rows that were tokenized, joined by commas; only attributes beside them are read, for rules with
            keep_together, and with select_rows of a folder that select made
        mixture: result of mix to carry out: folder, or mixture.json; it says epochs and rows of each task (with extend,
            from from_epoch on), and of the rules only long_context applies; empty = as the rules say; not read with a
            plan or held_out=true
        again: draw this plan again with another seed, as <plan>@<seed>: its rules, mixture and other options are the
            plan's; empty = a plan of these options
        base: plan that tasks are added to: its own keep their rows and are not read; empty = all tasks are drawn
        extend: plan that goes on: its epochs keep their rows, and each task goes on where it was; epochs= says how many
            there are then, and rules and tokenized_path may say more from from_epoch on; empty = a plan of its own
        from_epoch: with extend, the first epoch that is drawn anew; 0 = the first that the plan does not have
        after: what a model read before this plan, as <plan>:<epoch> or <plan>:<epoch>:<row>: rows that it saw less come
            first, and passes_total of a rule counts what it saw; empty = nothing
        compose: epochs of plans to put together into a plan of one epoch, as <plan>:<epoch>,<plan>:<epoch>; their rows,
            shuffled; options and rules are those of the plans; empty = the rules say what is drawn
        seed: seed of every random draw
        epochs: number of epochs; not read with a mixture
        held_out: sample the held-out rows instead, each once; of the rules only long_context applies; output_path then
            ends with -holdout
        context_size: longest row in tokens, one more than the trainer's context
        min_resp_length: shortest response in tokens, its end token included
        profile: pairmill, or data_io for the reference's bytes, defects included
        unmatched: tasks that no rule matches: take them with a warning, unless unmatched: of the rule file says another
            thing, leave them out, or refuse them
        tasks: which tasks of tokenized_path are taken and what rules call them, as a YAML file; empty = all, by their
            own names
        fail_on: alarms that fail the stage before a result is committed, of vanished, unmatched_task, unmatched_rule,
            two_rules, unmatched_source, links; empty = they are warnings
        links: symbolic links in folders that are listed: skip leaves them out with a warning, follow reads what they
            lead to, refuse fails the stage
        policy: policy.yaml: which sources, files and licences are allowed, denied, held or for evaluation only
            (docs/policy.md); empty = all are allowed
        policy_on: what becomes of data that policy= does not allow: refuse fails the stage, leave_out goes on without
            it
        tokenized_manifest: manifest of the stage that made tokenized_path, for lineage
        mixture_manifest: manifest of the stage that made mixture, for lineage
    """
    return dsl.ContainerSpec(
        image=IMAGE,
        command=["python", "-m", "pairmill", "stage", "sample"],
        args=["--executor-input", dsl.PIPELINE_TASK_EXECUTOR_INPUT_PLACEHOLDER],
    )


if __name__ == "__main__":
    compiler.Compiler().compile(sample, __file__.replace(".py", ".yaml"))
