"""``inspect``: what training on a sampled folder will look like, before any GPU is rented."""

from pairmill import log, storage
from pairmill.engine import manifest as manifests
from pairmill.errors import UsageError
from pairmill.formats.results.sample import SampleResult
from pairmill.loader.plan import World
from pairmill.loader.row_plan import RowPlan
from pairmill.mixture.realised import Realised
from pairmill.report.model import Report
from pairmill.stages.sample.inspect.config import InspectConfig
from pairmill.stages.sample.inspect.left import report_left
from pairmill.stages.sample.inspect.report import report_of
from pairmill.stages.sample.inspect.walk import preview


def inspect(config: InspectConfig) -> str:
    """Walk all epochs as a loader would. Return the report as Markdown.

    Raises:
        UsageError: an option is wrong.
        InputError: the folder is absent or damaged, or such ranks cannot read it; the message is the loader's.
        StorageError: the report cannot be written.
    """
    page = storage.normalise(config.report, "report") if config.report else ""
    if page and (config.report.endswith("/") or (storage.scheme(page) == "file" and storage.local_path(page).is_dir())):
        raise UsageError("is a folder", where="report", got=config.report, expected="a file, such as report.html")
    report = look(config)
    if page:
        with storage.store_for(page).create(page) as path:
            path.write_text(report.html(), encoding="utf-8")
        log.event(f"report: {page}")
    return report.markdown()


def look(config: InspectConfig) -> Report:
    """Return the report, without writing it: of the whole training, or of what a saved position has left."""
    world = World(config.ranks, config.batch_tokens)
    plan = RowPlan(
        config.path,
        packing=config.packing,
        balance=config.balance,
        tail=config.tail,
        long_rows=config.long_rows,
        one_token_rows=config.one_token_rows,
    )
    if config.state or config.accumulate != 1:
        return report_left(plan, world, config)
    (folder,) = plan.folders
    # Folders of other tools have no manifest, and samples without a mixture nothing of one.
    manifest = manifests.read(str(folder.path))
    drawn = SampleResult.find(manifest) if manifest is not None else None
    realised = Realised.load(drawn.mixture) if drawn is not None and drawn.mixture else None
    return report_of(preview(plan, world), folder.metadata, config, realised)
