"""The clean stage as a Kubeflow component."""

# No postponed annotations here: kfp reads the signature's types themselves.
from kfp import dsl

from components.clean.config import CleanConfig
from pairmill.interface.kfp import container, default


@dsl.container_component
def clean(
    root: str,
    output: dsl.OutputPath(str),  # type: ignore[valid-type]
    fingerprint: dsl.OutputPath(str),  # type: ignore[valid-type]
    rows_out: dsl.OutputPath(int),  # type: ignore[valid-type]
    manifest: dsl.Output[dsl.Dataset],
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
    raw: str = default(CleanConfig, "raw"),
    sources: str = default(CleanConfig, "sources"),
    source_options: str = default(CleanConfig, "source_options"),
    max_reject_fraction: float = default(CleanConfig, "max_reject_fraction"),
    profile: str = default(CleanConfig, "profile"),
    max_record_bytes: int = default(CleanConfig, "max_record_bytes"),
    workers: int = default(CleanConfig, "workers"),
    share: str = default(CleanConfig, "share"),
    verify: bool = default(CleanConfig, "verify"),
    raw_manifest: dsl.Input[dsl.Dataset] = None,
) -> dsl.ContainerSpec:
    """Turn raw instruction data sets into rows {condition, instruction, response}.

    Documentation: components/clean/README.md

    Args:
        root: project folder or URI; results go to root/clean/fingerprint.
        raw: what fetch put out, or a folder or URI that holds one folder of raw files per source; empty where every
            source is a YAML file with files.
        raw_manifest: manifest of the stage that brought the raw data, for lineage.
        sources: sources to clean, by name or as YAML files, joined by commas; all = every known one that is in raw.
        source_options: options of single sources, as source.option=value, joined by commas.
        max_reject_fraction: malformed rows of a source that are put aside, as a fraction; more fail the stage.
        profile: pairmill, or data_io for the reference's bytes.
        max_record_bytes: longest record that is read; a longer one fails the stage, because memory follows it.
        workers: processes in the pod; 0 = one per core.
        share: do only this share of the shards, as 2/7, and finish nothing; empty = all, and finish.
        verify: read what was made before and what is read, rather than trust sizes; what is damaged is made again.
        output: URI of the finished folder.
        fingerprint: its content identity.
        rows_out: rows written.
        manifest: what the folder holds and what became of every row.
        metrics: numbers to compare between runs.
        report: what to look at.
    """
    return container("clean")
