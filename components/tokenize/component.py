"""The tokenize stage as a Kubeflow component."""

# No postponed annotations here: kfp reads the signature's types themselves.
from kfp import dsl

from components.tokenize.config import TokenizeConfig
from pairmill.interface.kfp import container, default


@dsl.container_component
def tokenize(
    root: str,
    rows: str,
    tokenizer: str,
    output: dsl.OutputPath(str),  # type: ignore[valid-type]
    fingerprint: dsl.OutputPath(str),  # type: ignore[valid-type]
    rows_out: dsl.OutputPath(int),  # type: ignore[valid-type]
    manifest: dsl.Output[dsl.Dataset],
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
    boq: str = default(TokenizeConfig, "boq"),
    eoq: str = default(TokenizeConfig, "eoq"),
    eoa: str = default(TokenizeConfig, "eoa"),
    conditions: str = default(TokenizeConfig, "conditions"),
    profile: str = default(TokenizeConfig, "profile"),
    max_record_bytes: int = default(TokenizeConfig, "max_record_bytes"),
    workers: int = default(TokenizeConfig, "workers"),
    share: str = default(TokenizeConfig, "share"),
    verify: bool = default(TokenizeConfig, "verify"),
    rows_manifest: dsl.Input[dsl.Dataset] = None,
    tokenizer_manifest: dsl.Input[dsl.Dataset] = None,
) -> dsl.ContainerSpec:
    """Encode rows into per-task token arrays.

    Documentation: components/tokenize/README.md

    Args:
        root: project folder or URI; results go to root/tokenize/fingerprint.
        rows: folders or URIs of rows, joined by commas.
        tokenizer: a tokenizer.json, a folder or URI that holds one, or owner/name@revision of the Hub.
        rows_manifest: manifest of the stage that made the rows, for lineage.
        tokenizer_manifest: manifest of the stage that made the tokenizer, for lineage.
        boq: token before a question.
        eoq: token after a question.
        eoa: token after an answer.
        conditions: tag=token for every condition tag, joined by commas.
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
    return container("tokenize")
