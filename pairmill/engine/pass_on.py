"""A stage whose result is given: it says what it was given and passes it on. No byte is read or copied.

In a compiled pipeline every stage has a task. With ``rows=``, ``tokenizer=`` or ``tokenized=`` the tasks of the stages
that have nothing to do end in seconds: each makes a small finished folder ``<root>/<stage>/given/<fingerprint>/`` with
a manifest and a report, for the lineage and for people.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, ClassVar

from pairmill import storage
from pairmill.engine.manifest import Ledger, Manifest, fingerprint_from
from pairmill.engine.options import RunConfig, list_item
from pairmill.engine.stage import GivenResult, Outputs, Rounds, Shard, ShardRecord, Stage, StagePlan
from pairmill.engine.writer import Writer
from pairmill.report.model import Report, Table


class _Plan(StagePlan[None]):
    def manifest_options(self, config: Any) -> dict[str, Any]:
        """None: the stage's own options change nothing here."""
        return {}


class PassOn(Stage[Any, StagePlan[None]]):
    """No round has a shard."""

    name: ClassVar[str] = ""
    version: ClassVar[int] = 1
    config = RunConfig

    def __init__(self, stage: Stage[Any, Any], given: GivenResult) -> None:
        self._stage, self._given = stage, given
        vars(self).update(
            name=stage.name,
            folder=storage.join(stage.folder or stage.name, "given"),
            output_in_list=stage.output_in_list,
            counts_rows=False,
        )

    def plan(self, config: Any) -> StagePlan[None]:
        given = self._given
        says: dict[str, Any] = {
            "option": given.option,
            "uris": list(given.uris),
            "files": given.files,
            "bytes": given.size,
        }
        if given.rows is not None:
            says["rows"] = given.rows
        fingerprint = fingerprint_from(self.name, self.version, says)
        return _Plan(inputs=[], build_context=lambda: None, says=says, fingerprint=fingerprint)

    def rounds(self, config: Any, plan: StagePlan[None]) -> Generator[Sequence[Shard[Any]], list[ShardRecord], None]:
        yield []

    def ledger(self, plan: StagePlan[None], rounds: Rounds) -> Ledger:
        """Empty: this stage has read no row."""
        return Ledger()

    def metrics(self, manifest: Manifest) -> dict[str, float]:
        rows = self._given.rows
        return {} if rows is None or not manifest.data else {"rows_out": rows}

    def finish(self, config: Any, plan: StagePlan[None], rounds: Rounds, out: Writer) -> dict[str, Any]:
        return {"given": plan.says}

    def outputs(self, config: Any, manifest: Manifest, folder: str) -> Outputs:
        uris = self._given.uris or (folder,)
        output = ",".join(map(list_item, uris)) if self.output_in_list else uris[0]
        # What a share of it gives has no data: the task that finishes says it.
        rows = self._given.rows or 0
        return Outputs(output, rows if manifest.data else 0, printed=[output])

    def report(self, manifest: Manifest) -> Report:
        given = self._given
        if given.uris == ("",):
            verdict = f"{given.option} says that there is nothing to do: later stages read no result of this one."
            return Report(self.name, verdict=verdict)
        if not given.uris:
            return Report(self.name, verdict=f"{given.option}= is given, so this stage has nothing to do.")
        rows = "not counted" if given.rows is None else given.rows
        return Report(
            self.name,
            {"Files": given.files, "Bytes": given.size, "Rows": rows},
            [Table("Passed on", ("Place",), [(uri,) for uri in given.uris])],
            verdict=f"{given.option}= is given: it was checked and is passed on; nothing was read or copied.",
        )
