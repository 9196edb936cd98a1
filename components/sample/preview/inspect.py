"""``inspect``: what training on a sampled folder will look like, before any GPU is rented."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pairmill import log, storage
from pairmill.engine.stage import option
from pairmill.errors import UsageError

if TYPE_CHECKING:
    from pairmill.report.model import Report


@dataclass(kw_only=True)
class InspectConfig:
    """Say what training on a sampled folder will look like: steps, slots used, rows left over, balance of the ranks."""

    path: str = option(help="sampled folder, or folder of a node")
    ranks: int = option(8, help="data-parallel ranks of the training run")
    batch_tokens: int = option(
        196_608, help="tokens of a global batch, padding included; global_batch_size of HRM-Text"
    )
    balance: Literal["lpt", "quadratic", "quadratic_work"] = option(
        "lpt", help="how rows go to ranks: by tokens as HRM-Text does, length², attention work"
    )
    tail: Literal["drop", "keep", "carry"] = option(
        "drop", help="what becomes of an epoch's last batch; HRM-Text drops it"
    )
    long_rows: Literal["refuse", "skip"] = option("refuse", help="rows that are longer than a rank's slots")
    one_token_rows: Literal["keep", "skip"] = option("keep", help="rows whose response is one token")
    report: str = option("", help="file or URI for a page with charts, as report.html; empty = none")


def inspect(config: InspectConfig) -> str:
    """Walk all epochs as a loader would; returns the report as Markdown.

    Raises:
        UsageError: an option is wrong.
        InputError: the folder is absent or damaged, or such ranks cannot read it: as the loader would say it.
        StorageError: the report cannot be written.
    """
    page = _page(config.report)
    report = look(config)
    if page:
        with storage.store_for(page).create(page) as path:
            path.write_text(report.html(), encoding="utf-8")
        log.event(f"report: {page}")
    return report.markdown()


def look(config: InspectConfig) -> Report:
    """The report, written nowhere."""
    # The sampler's program reads this module at every start, and walks no plan.
    from components.sample.preview.report import report_of
    from components.sample.preview.walk import look_ahead
    from pairmill.loader.plan import World
    from pairmill.loader.row_plan import RowPlan

    world = World(config.ranks, config.batch_tokens)
    plan = RowPlan(
        config.path,
        balance=config.balance,
        tail=config.tail,
        long_rows=config.long_rows,
        one_token_rows=config.one_token_rows,
    )
    (folder,) = plan.folders
    return report_of(look_ahead(plan, world), folder.metadata, config)


def _page(report: str) -> str:
    """Where the page goes; empty if there is to be none."""
    page = storage.normalise(report, "report") if report else ""
    if page and (report.endswith("/") or (storage.scheme(page) == "file" and storage.local_path(page).is_dir())):
        raise UsageError("is a folder", where="report", got=report, expected="a file, as report.html")
    return page
