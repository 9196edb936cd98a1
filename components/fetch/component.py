"""The fetch stage as a Kubeflow component."""

# No postponed annotations here: kfp reads the signature's types themselves.
from kfp import dsl

from components.fetch.config import FetchConfig
from pairmill.interface.kfp import container, default


@dsl.container_component
def fetch(
    root: str,
    output: dsl.OutputPath(str),  # type: ignore[valid-type]
    fingerprint: dsl.OutputPath(str),  # type: ignore[valid-type]
    shares: dsl.OutputPath(list),  # type: ignore[valid-type]
    manifest: dsl.Output[dsl.Dataset],
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
    sources: str = default(FetchConfig, "sources"),
    raw: str = default(FetchConfig, "raw"),
    lock: str = default(FetchConfig, "lock"),
    update: str = default(FetchConfig, "update"),
    workers: int = default(FetchConfig, "workers"),
    share: str = default(FetchConfig, "share"),
    verify: bool = default(FetchConfig, "verify"),
    split: int = default(FetchConfig, "split"),
) -> dsl.ContainerSpec:
    """Bring raw data to the project, at locked revisions, with digests and licences.

    Documentation: components/fetch/README.md

    Args:
        root: project folder or URI; raw data goes to root/raw/source/revision.
        sources: sources to fetch, by name or as YAML files, joined by commas; all = every one that has a folder in
            raw, or without raw every known one.
        raw: folder or URI with raw files that are there already, one folder per source.
        lock: file that holds the revision of each source; empty = sources.lock.yaml below root.
        update: sources whose lock is moved to what is published now, joined by commas; all = every one.
        workers: downloads at the same time; 0 = one per core.
        share: do only this share of the shards, as 2/7, and finish nothing; empty = all, and finish.
        verify: read what was made before and what is read, rather than trust sizes; what is damaged is made again.
        split: shares in which later stages are to do their work, at most 20.
        output: URI of the finished folder, an index of the raw data.
        fingerprint: its content identity.
        shares: the shares of split, for a loop over pods; none for one.
        manifest: what was fetched, from where, at which revision and licence.
        metrics: numbers to compare between runs.
        report: what to look at.
    """
    return container("fetch")
