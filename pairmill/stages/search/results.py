"""What other stages made of the mixtures, read and checked: plans, evaluations, held-out rows, an earlier search."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import Manifest
from pairmill.engine.source_names import source_of
from pairmill.errors import InputError, UsageError, did_you_mean
from pairmill.formats.results.sample import SampleResult, tokenizer_digest
from pairmill.formats.training_results import EvaluateResult, SearchResult
from pairmill.loader.tokenizer import Tokenizer, check_same_tokenizer
from pairmill.stages.search.findings import Floats, Measured, targets
from pairmill.stages.search.settings import Objective
from pairmill.stages.search.space import Source

_ALL = "all"
"""The line of evaluate's table over all held-out rows."""


@dataclass(frozen=True)
class Evaluated:
    """An evaluation: what a net loses on held-out rows.

    Attributes:
        fingerprint: of its content.
        table: by source of the held-out rows, ``rows``, ``tokens``, ``bytes``, ``loss`` and ``bits_per_byte``.
    """

    uri: str
    fingerprint: str
    table: Mapping[str, Mapping[str, Any]]

    @classmethod
    def open(cls, given: str, option: str) -> Self:
        """Open a finished folder of evaluate.

        Raises:
            InputError: it is not one, or has no held-out loss.
        """
        uri, manifest = manifests.read_result(given, option, "evaluate")
        held_out = EvaluateResult.from_manifest(manifest).held_out
        if not held_out:
            raise InputError(
                "no held-out loss", where=f"{option}={uri}", expected="evaluate with held_out=", hint="evaluate again"
            )
        table = {name: item for name, item in held_out["table"].items() if name != _ALL}
        return cls(uri, manifest.fingerprint, table)

    @property
    def rows(self) -> dict[str, tuple[int, int, int]]:
        """Rows, tokens and bytes of each source: the same for all that were evaluated on the same rows."""
        return {name: (item["rows"], item["tokens"], item["bytes"]) for name, item in sorted(self.table.items())}

    def losses(self, measure: str) -> dict[str, float]:
        """Return the losses by source.

        Raises:
            InputError: one was not measured.
        """
        result = {}
        for name, item in self.table.items():
            if item[measure] is None:
                raise InputError(
                    f"no {measure} of {name!r}",
                    where=self.uri,
                    got="responses without bytes" if item["tokens"] else "no response token",
                    hint="set=objective.measure=loss, or leave the source out of the held-out rows",
                )
            result[name] = float(item[measure])
        return result


@dataclass(frozen=True)
class ProxyResults:
    """What was measured of the proxies.

    Attributes:
        mixtures: the identity of the mixture of each, as its plan says it.
        evaluated: in the same order.
    """

    mixtures: Sequence[str]
    evaluated: Sequence[Evaluated]

    @classmethod
    def open(cls, sampled: Sequence[str], evaluated: Sequence[str]) -> Self:
        """Open plans and evaluations.

        Raises:
            InputError: one is not there, a plan has no mixture, or the evaluations are of different rows.
        """
        mixtures = []
        for given in sampled:
            uri, manifest = manifests.read_result(given, "sampled", "sample")
            refs = [ref.fingerprint for ref in manifest.inputs if ref.role == "mixture"]
            if not refs:
                raise InputError("a plan without a mixture", where=f"sampled={uri}", expected="sample with mixture=")
            mixtures.append(refs[0])
        opened = [Evaluated.open(given, "evaluated") for given in evaluated]
        for item in opened[1:]:
            _same_rows(opened[0], item, "evaluated")
        return cls(mixtures, opened)

    def measured(self, known: Sequence[str], points: Floats, objective: Objective) -> Measured:
        """Return what the law is fitted to.

        Args:
            known: the identity of the mixture of each run.
            points: of the runs, float64 [runs, axes].
            objective: what counts.

        Raises:
            InputError: results of other mixtures, or fewer than there are runs.
            UsageError: the objective names no source of the held-out rows.
        """
        at: dict[str, int] = {}
        for number, mixture in enumerate(self.mixtures):
            at.setdefault(mixture, number)
        missing = [number for number, mixture in enumerate(known) if mixture not in at]
        if missing:
            raise InputError(
                f"{len(missing)} of {len(known)} mixtures were not evaluated",
                where="sampled",
                got=f"{len(self.mixtures)} plans; none is of run {missing[0]}",
                expected="a plan and an evaluation for each mixture of this search",
                hint="sample, train and evaluate the mixtures that search wrote for these options",
            )
        taken = [self.evaluated[at[mixture]] for mixture in known]
        names = sorted(taken[0].table)
        refuse_unknown_targets(objective, names)
        result = [item.losses(objective.measure) for item in taken]
        losses = {name: np.array([item[name] for item in result]) for name in names}
        return Measured(points, losses, targets(names, objective.weights))

    def measure_optimum(self, optimum: Evaluated, measure: str) -> dict[str, float]:
        """Return what the optimum lost, checked to be of the same rows."""
        _same_rows(self.evaluated[0], optimum, "measured")
        return optimum.losses(measure)


def objective(losses: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """Return the weighted mean."""
    return sum(weight * losses[name] for name, weight in weights.items())


def refuse_unknown_targets(objective: Objective, names: Sequence[str]) -> None:
    """Raise UsageError if a weight of the objective is of no source of the held-out rows."""
    for name in objective.weights:
        if name not in names:
            raise UsageError(
                f"the held-out rows have no source {name!r}",
                where=f"search_config objective.weights.{name}",
                got=", ".join(names),
                expected="a source of the held-out rows",
                hint=did_you_mean(name, names),
            )


def check_held_out(
    given: str, tokenized: tuple[str, Tokenizer], sources: Mapping[str, set[str]], objective: Objective
) -> None:
    """Check held-out rows before anything is trained: their tokenizer, and that each source has some.

    A folder that another program made says nothing of its sources; of it only the tokenizer is checked.

    Args:
        given: a folder or plan of held-out rows.
        tokenized: where the tokens are that are searched, and their tokenizer.
        sources: by name, what their held-out rows are called.
        objective: with weights, a source without held-out rows is meant.

    Raises:
        InputError: it is not there, was made with another tokenizer, or lacks a source.
        UsageError: a weight is of a source that it lacks.
    """
    uri = storage.normalise(given, "held_out")
    manifest = manifests.read(uri)
    check_same_tokenizer([tokenized, (f"held_out={uri}", _tokenizer(uri, manifest))], "held_out")
    if manifest is None:
        if not storage.store_for(uri).exists(storage.join(uri, "metadata.json")):
            raise InputError("not a sampled folder", where=f"held_out={uri}", expected="sample held_out=true")
        return
    drawn = SampleResult.find(manifest)
    names = sorted({source_of(task["name"]) for task in drawn.sources} if drawn is not None else ())
    refuse_unknown_targets(objective, names)
    lacking = [name for name, called in sources.items() if not called & {*names}]
    if lacking and not objective.weights:
        raise InputError(
            f"{len(lacking)} sources have no held-out rows" if len(lacking) > 1 else "a source has no held-out rows",
            where=f"held_out={uri}",
            got=f"none of {', '.join(map(repr, lacking[:5]))}; some of {', '.join(names)}",
            expected="some of each source",
            hint="say which of them count, in objective.weights of search_config, or set rows of each source apart",
        )


def earlier(given: str) -> tuple[str, SearchResult]:
    """Read a finished search, and return its fingerprint too.

    Raises:
        InputError: it is none, or has no optimum.
    """
    uri, manifest = manifests.read_result(given, "earlier", "search")
    result = SearchResult.from_manifest(manifest)
    if not result.optimum:
        raise InputError(
            "the search found no mixture yet",
            where=f"earlier={uri}",
            expected="a search with results",
            hint="finish that search first",
        )
    return manifest.fingerprint, result


def kept(before: SearchResult, sources: Sequence[Source], again: Sequence[str]) -> dict[str, float]:
    """Return the earlier shares of the sources that are as they were, without those that are to be searched again.

    Raises:
        UsageError: ``again`` names an unknown source.
    """
    names = [source.name for source in sources]
    for name in again:
        if name not in names:
            raise UsageError(
                f"no source is called {name!r}",
                where="search_config again",
                expected=f"one of {', '.join(names[:20])}",
                hint=did_you_mean(name, names),
            )
    digests = {source["name"]: source["digest"] for source in before.sources}
    same = [item.name for item in sources if digests.get(item.name) == item.digest and item.name not in again]
    return {name: float(before.optimum["shares"][name]) for name in same}


def _same_rows(first: Evaluated, second: Evaluated, option: str) -> None:
    if first.rows != second.rows:
        names = sorted(
            name for name in first.rows.keys() | second.rows.keys() if first.rows.get(name) != second.rows.get(name)
        )
        raise InputError(
            "evaluated on other rows",
            where=f"{option}={second.uri}",
            got=f"{', '.join(names[:5])} differ from those of {first.uri}",
            expected="all on the same held-out rows, with the same tokenizer",
            hint="evaluate again, with the held_out= of the others",
        )


def _tokenizer(uri: str, manifest: Manifest | None) -> Tokenizer | None:
    if storage.scheme(uri) == "file":
        return Tokenizer.from_folder(Path(storage.local_path(uri)), manifest)
    digest = tokenizer_digest(manifest) if manifest is not None else ""
    return Tokenizer(digest, {}) if digest else None
