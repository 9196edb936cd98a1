"""The sample stage as a Kubeflow component."""

# No postponed annotations here: kfp reads the signature's types themselves.
from kfp import dsl

from components.sample.config import SampleConfig
from pairmill.interface.kfp import container, default


@dsl.container_component
def sample(
    root: str,
    tokenized_path: str,
    output_path: str,
    output: dsl.OutputPath(str),  # type: ignore[valid-type]
    fingerprint: dsl.OutputPath(str),  # type: ignore[valid-type]
    rows_out: dsl.OutputPath(int),  # type: ignore[valid-type]
    manifest: dsl.Output[dsl.Dataset],
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
    prefix_config_path: str = default(SampleConfig, "prefix_config_path"),
    seed: int = default(SampleConfig, "seed"),
    epochs: int = default(SampleConfig, "epochs"),
    context_size: int = default(SampleConfig, "context_size"),
    min_resp_length: int = default(SampleConfig, "min_resp_length"),
    plan: str = default(SampleConfig, "plan"),
    layout: str = default(SampleConfig, "layout"),
    keep: int = default(SampleConfig, "keep"),
    workers: int = default(SampleConfig, "workers"),
    verify: bool = default(SampleConfig, "verify"),
    profile: str = default(SampleConfig, "profile"),
    tokenized_manifest: dsl.Input[dsl.Dataset] = None,
) -> dsl.ContainerSpec:
    """Plan stratified epochs of a tokenized folder, and report what training will see.

    Documentation: components/sample/README.md

    Args:
        root: project folder or URI; plan and report go to root/sample/fingerprint.
        tokenized_path: tokenized folder or URI.
        output_path: folder of this machine for the arrays; empty = plan and report only, as on a cluster.
        tokenized_manifest: manifest of the stage that made the folder, for lineage.
        prefix_config_path: how much of each task is taken.
        seed: seed of every random draw.
        epochs: number of epochs.
        context_size: longest row in tokens, one more than the trainer's context.
        min_resp_length: shortest response in tokens, its end token included.
        plan: carry out this plan, its folder or fingerprint; empty = make one.
        layout: compact, or data_io for every token as the reference has it; auto = by profile.
        keep: older samples that stay beside the one in output_path=…/{fingerprint}.
        workers: threads; 0 = one per available core, 32 at most.
        verify: read what was made before and what is read, rather than trust sizes; what is damaged is made again.
        profile: pairmill, or data_io for the reference's bytes.
        output: URI of the folder with plan and report.
        fingerprint: its content identity.
        rows_out: rows over all epochs.
        manifest: what was sampled and what became of every row.
        metrics: numbers to compare between runs.
        report: what to look at.
    """
    return container("sample")
