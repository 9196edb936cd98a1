"""Shows the line of a run: ``pairmill line root=… [sample=<fingerprint>] [output=line.html]``.

stdout has a table: the rows and tokens of each source from fetch to an epoch; the last line is the place of the page.

One page, made of the manifests below ``root``: how shares of sources change from clean to sample, and what each stage
dropped and why. ``pairmill.line.run`` writes it at the end of a run, and the task of sample has it in its report.
"""

from dataclasses import dataclass
from datetime import datetime
from functools import partial

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.engine import usage
from pairmill.engine.listing import FOLDERS, WITHOUT_REPORT, list_results
from pairmill.engine.made_by import INDEX, LINE
from pairmill.engine.manifest import Manifest
from pairmill.engine.options import option
from pairmill.errors import InputError
from pairmill.interface import cli
from pairmill.lineage import page, steps
from pairmill.lineage.flow import flow_of
from pairmill.report.model import Link, Report, Table

FOLDER = LINE
"""Below the root: a page for each sample."""


@dataclass(kw_only=True)
class LineConfig:
    """Make one page of what became of the rows, from clean to sample."""

    root: str = option(help="project folder or URI")
    sample: str = option("", help="fingerprint of the sample; empty = the only one below root")
    output: str = option("", help=f"file or URI to write; empty = <root>/{FOLDER}/<fingerprint>.html")


def run(config: LineConfig) -> str:
    """Write the page; returns its URI.

    Raises:
        InputError: the sample is not there, or which one is meant is not known.
    """
    root = storage.normalise(config.root, "root")
    sample = _sample(root, config.sample).manifest
    uri = storage.normalise(config.output, "output") if config.output else ""
    uri = uri or storage.join(root, FOLDER, f"{sample.fingerprint}.html")
    write(uri, report(root, sample).html())
    if not config.output:
        write(storage.join(root, FOLDER, INDEX), _index(root).html())
    return uri


def report(root: str, sample: Manifest) -> Report:
    """Return the page of a sample."""
    result = steps.find(root, sample)
    finished = {item.manifest.fingerprint: _finished(root, item.stage, item.manifest.fingerprint) for item in result}
    trained = [step.manifest for step in steps.runs(root, sample)]
    results = [*((step.stage, step.manifest) for step in result), *(("train", manifest) for manifest in trained)]
    used: dict[str, list[usage.Usage]] = {}
    for stage, manifest in results:
        used.setdefault(stage, []).extend(usage.read(root, stage, manifest.fingerprint))
    return page.report_of(result, trained, finished, used)


def write(uri: str, text: str) -> None:
    """Write a page, unless it is there already: one that is read right now is not replaced by the same."""
    content, store = text.encode(), storage.store_for(uri)
    if not store.exists(uri) or store.read(uri) != content:
        store.write(uri, content)


def _index(root: str) -> Report:
    """Return the page that the reports of all stages lead to: what is finished below a root, and when it was."""
    lines = [
        (Link(folder, f"../{folder}/{item.fingerprint}/report.html"), item.fingerprint, _time(item.finished))
        for folder in FOLDERS
        for item in list_results(root, [folder])
        if item.finished is not None and folder not in WITHOUT_REPORT
    ]
    top = storage.join(root, FOLDER)
    samples = [
        item.path.removesuffix(".html") for item in storage.store_for(top).list(top) if item.path.endswith(".html")
    ]
    pages = [(Link(name, f"{name}.html"),) for name in sorted(samples) if manifests.is_fingerprint(name)]
    return Report(
        "the line",
        {"Finished folders": len(lines), "Lines": len(pages)},
        [
            Table("Lines, from the first rows to a sample", ("Sample",), pages),
            Table("Reports of all stages", ("Stage", "Fingerprint", "Finished"), lines),
        ],
        verdict="What is finished below this root. Each report says the command that makes it.",
    )


def _finished(root: str, stage: str, fingerprint: str) -> str:
    uri = storage.join(root, stage, fingerprint, manifests.MANIFEST)
    return _time(storage.store_for(uri).modified(uri))


def _time(when: datetime | None) -> str:
    return when.strftime("%Y-%m-%d %H:%M UTC") if when is not None else "–"


def _sample(root: str, fingerprint: str) -> steps.Step:
    if not fingerprint:
        return steps.last(root)
    uri = storage.join(root, "sample", fingerprint)
    result = manifests.read(uri) if manifests.is_fingerprint(fingerprint) else None
    if result is None:
        raise InputError("no such sample", where=uri, expected="the fingerprint of a finished sample")
    return steps.Step("sample", result)


def _printed(config: LineConfig) -> str:
    uri, root = run(config), storage.normalise(config.root, "root")
    return f"{flow_of(steps.find(root, _sample(root, config.sample).manifest)).text()}\n{uri}\n"


main = partial(cli.run_command, "line", cli.Command(LineConfig, _printed))
