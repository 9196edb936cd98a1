"""Tokenized folders whose tokens say of which task and row they are, and mixtures over them, made by mix's planning."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from pairmill.formats.eligible_rows import rows_of
from pairmill.formats.tokenized import Folder
from pairmill.formats.tokenized_path import open_tokenized
from pairmill.formats.tokens import INDEX, INFO
from pairmill.interface.cli import Outcome
from pairmill.mixture.making import CountedSource, WantedPhase, make
from pairmill.mixture.methods import Recipe
from pairmill.mixture.plan import BUCKETS, NAME, Inputs, Key, Mixture, PlannedPhase, PlannedSource, PlannedTask
from pairmill.rules.book import Rules
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.sample.run import run

Arrays = NDArray[np.int64]


@dataclass(frozen=True)
class Drawn:
    """The rows of an epoch in training order: number of the task, of its row, and tokens of the response."""

    task: Arrays
    row: Arrays
    length: Arrays


@dataclass
class Bench:
    """A tokenized folder of others, a mixture over it, and samples of it.

    Attributes:
        lengths: of the responses, by task.
        codes: the bucket of each row, of tasks that have buckets.
    """

    folder: Path
    context: int = 4097
    lengths: dict[str, Arrays] = field(default_factory=dict)
    codes: dict[str, NDArray[np.uint16]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tokenized = self.folder / "tokenized"
        self.mixture = self.folder / "mixture"
        self.target = self.folder / "sampled"
        self.tokenized.mkdir(parents=True)
        self.mixture.mkdir()
        (self.tokenized / INFO).write_text(json.dumps({"vocab_size": 1 << 20}))
        self.rules([])

    def rules(self, items: list[dict[str, Any]]) -> None:
        (self.folder / "rules.yaml").write_text(yaml.safe_dump(items))

    def put(self, name: str, lengths: Sequence[int] | Arrays, codes: Sequence[int] | None = None) -> None:
        """A task; its instructions are two tokens: numbers of the task, and of the row."""
        resp = np.asarray(lengths, np.int64)
        number = self.lengths[name] = resp
        task = list(self.lengths).index(name)
        rows = np.arange(len(number))
        ids = np.repeat(np.full(len(resp), task), resp + 2)
        starts = np.cumsum(resp + 2) - resp - 2
        ids[starts + 1] = rows
        folder = self.tokenized / name
        folder.mkdir(exist_ok=True)
        np.save(folder / "tokens.npy", ids.astype(np.uint32))
        columns = (starts, np.full(len(resp), 2), starts + 2, resp)
        for part, values in zip(INDEX, columns, strict=True):
            np.save(folder / f"{part}.npy", values.astype(np.uint64))
        if codes is not None:
            self.codes[name] = np.asarray(codes, np.uint16)

    def opened(self) -> Folder:
        return open_tokenized(str(self.tokenized), "tokenized_path", tolerate_strays=True)

    def counted(self) -> dict[Key, PlannedTask]:
        """What mix counts: the rows of each task or bucket that may be sampled."""
        config = self.config()
        rules = Rules.load(config.prefix_config_path, "pairmill", "prefix_config_path")
        found = {}
        for one in self.opened().tasks:
            rows = rows_of(one.name, rules.match(one.name)[0], one.index(), config, numbered=True)
            lengths = rows.columns["resp_len"].astype(np.int64)
            codes = self.codes[one.name][rows.origins] if one.name in self.codes else None
            for bucket in [None] if codes is None else sorted({*self.codes[one.name].tolist()} - {65535}):
                mine = lengths if codes is None else lengths[codes == bucket]
                counts = len(mine), int(mine.sum()), int((mine**2).sum())
                found[one.name, bucket] = PlannedTask(one.name, *counts, 0, bucket)
        return found

    def plan(
        self,
        sources: Mapping[str, Sequence[str]] | None = None,
        phases: Sequence[WantedPhase] = (),
        *,
        epochs: int = 3,
        recipe: Recipe | None = None,
        buckets: Sequence[str] = (),
        seed: int = 6,
        **options: Any,
    ) -> Mixture:
        """Plan a mixture and write it; by default each task is a source, or with ``buckets`` each bucket."""
        counted = self.counted()
        if buckets:
            made = [
                CountedSource(name, tuple(task for key, task in sorted(counted.items()) if key[1] == code))
                for code, name in enumerate(buckets)
            ]
        else:
            sources = sources or {name: [name] for name in self.lengths}
            made = [
                CountedSource(name, tuple(counted[one, None] for one in sorted(tasks)))
                for name, tasks in sources.items()
            ]
        phases = phases or [WantedPhase("all", 1.0, epochs, recipe or Recipe.parse("unimax"))]
        numbers = make(made, phases, **options)
        plan = self.plan_of(numbers.phases, numbers.sources, buckets, seed, numbers.budget, numbers.unfilled)
        self.write(plan)
        return plan

    def plan_of(
        self,
        phases: Sequence[PlannedPhase],
        sources: Sequence[PlannedSource],
        buckets: Sequence[str] = (),
        seed: int = 6,
        budget: float = 0.0,
        unfilled: float = 0.0,
    ) -> Mixture:
        """A plan of this folder with these numbers."""
        return Mixture(
            seed=seed,
            epochs=phases[-1].epochs[1],
            context=self.context,
            min_resp_length=2,
            budget=budget,
            unfilled=unfilled,
            phases=tuple(phases),
            sources=tuple(sources),
            inputs=Inputs(self.opened().fingerprint),
            buckets=tuple(buckets),
        )

    def write(self, plan: Mixture) -> None:
        (self.mixture / NAME).write_bytes(plan.dump())
        for task, codes in self.codes.items():
            (self.mixture / BUCKETS).mkdir(exist_ok=True)
            np.save(self.mixture / BUCKETS / f"{task}.npy", codes)

    def config(self, **options: Any) -> SampleConfig:
        values = {
            "tokenized_path": str(self.tokenized),
            "output_path": str(self.target),
            "prefix_config_path": str(self.folder / "rules.yaml"),
            "context_size": self.context,
            "workers": 2,
        }
        return SampleConfig(**{**values, **options})

    def run(self, **options: Any) -> Outcome:
        return run(self.config(**{"mixture": str(self.mixture), **options}))

    def epoch(self, number: int, target: Path | None = None) -> Drawn:
        """The rows of an epoch, as a trainer reads them."""
        folder = target or self.target
        ids = np.load(folder / "tokens.npy", mmap_mode="r")
        starts = np.load(folder / f"epoch_{number}" / "inst_start.npy").astype(np.int64)
        lengths = np.load(folder / f"epoch_{number}" / "resp_len.npy").astype(np.int64)
        return Drawn(ids[starts].astype(np.int64), ids[starts + 1].astype(np.int64), lengths)

    def metadata(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.target / "metadata.json").read_text())
        return found


def changed(plan: Mixture, source: int, task: int, **values: Any) -> Mixture:
    """A plan with other values of one task."""
    sources = list(plan.sources)
    tasks = list(sources[source].tasks)
    tasks[task] = replace(tasks[task], **values)
    sources[source] = replace(sources[source], tasks=tuple(tasks))
    return replace(plan, sources=tuple(sources))
