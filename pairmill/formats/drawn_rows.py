"""Which rows of which tokenized tasks a sample draws, so that no loss is measured on rows that are trained on.

A row is told by its task and by where its response begins there. A task is told by its name within one tokenized
folder, and by its tokens across two. Held-out rows that ``clean holdout=`` set apart are tasks of their own.
"""

from __future__ import annotations

import io
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate, pairwise
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.engine import policing
from pairmill.engine.manifest import Manifest
from pairmill.engine.source_names import source_of
from pairmill.errors import InputError
from pairmill.formats import sample_folder
from pairmill.formats.results import Rows
from pairmill.formats.results.sample import SampleResult
from pairmill.formats.sample_plan import FOLDER, HELD_OUT, find_base
from pairmill.formats.tokenized import Opening
from pairmill.formats.tokenized_path import open_place, stored
from pairmill.formats.tokens import Dataset
from pairmill.log import event

_SAMPLE, _TOKENIZED = "sample", "tokenized"
_STARTS: Final = f"{FOLDER}resp_start.npy"
_SHOWN: Final = 5
_EXPECTED: Final = "rows that clean holdout= set apart, sampled with held_out=true"
_HINT: Final = (
    "give held_out=<the plan of pairmill sample held_out=true … root=…>; clean holdout=0.01 sets such rows apart"
)


@dataclass(frozen=True)
class DrawnRows:
    """Rows of a sample, or of a whole tokenized folder.

    Attributes:
        where: option and place, for messages.
        tokenized: fingerprint of the tokenized folder.
        tasks: how many rows are taken, by task; tasks without one are left out.
        contents: sha256 of the tokens, by task, as far as the tokenized folder is at hand.
        apart: they are known to be held out.
        starts: reads where the response of each row begins in its task, int [rows], in the order of ``runs``; None = no
            plan is at hand, and any row of the tasks may be taken.
        runs: rows of one task after another, as name and count; a task may come again.
    """

    where: str
    tokenized: str
    tasks: Mapping[str, int]
    contents: Mapping[str, str] = field(default_factory=dict)
    apart: bool = False
    starts: Callable[[], NDArray[Any]] | None = None
    runs: Sequence[tuple[str, int]] = ()

    @classmethod
    def of_sample(cls, given: str, option: str, roots: Sequence[str]) -> Self | None:
        """Read those of a plan, or of arrays; None of a folder that another program made.

        Args:
            given: path or URI.
            option: that named it.
            roots: project folders below which the plan of arrays, and the tokenized folder, are looked for.
        """
        uri = storage.normalise(given, option)
        if storage.scheme(uri) == "file":
            uri = storage.normalise(str(sample_folder.folder_of(uri, option)), option)
        manifest = manifests.read(uri)
        if manifest is None or manifest.stage != _SAMPLE:
            return None
        roots = [storage.parent_of(storage.parent_of(uri)), *roots]
        return cls._of_plan(f"{option}={uri}", uri, manifest, roots)

    @classmethod
    def recorded(cls, fingerprint: str, where: str, roots: Iterable[str]) -> Self | None:
        """Find those of a sample known by its fingerprint alone; None if its plan is below none of the roots."""
        roots = list(roots)
        for root in roots:
            uri = storage.join(root, _SAMPLE, fingerprint)
            if storage.store_for(uri).exists(storage.join(uri, manifests.MANIFEST)):
                manifest = manifests.read(uri)
                assert manifest is not None
                return cls._of_plan(where, uri, manifest, roots)
        return None

    @classmethod
    def of_tokenized(cls, where: str, fingerprint: str, tasks: Iterable[Dataset]) -> Self:
        """Return all rows of these tasks of a tokenized folder."""
        tasks = [*tasks]
        return cls(where, fingerprint, {task.name: 1 for task in tasks}, _contents(tasks))

    @classmethod
    def _of_plan(cls, where: str, uri: str, manifest: Manifest, roots: Sequence[str]) -> Self:
        refs = {ref.role: ref.fingerprint for ref in manifest.inputs}
        tokenized = refs.get(_TOKENIZED, "")
        places = [uri, *(storage.join(root, _SAMPLE, manifest.fingerprint) for root in roots)]
        folders = filter(None, (stored(root, tokenized) for root in roots))
        runs, tasks = [(item["name"], item["rows"]) for item in _sources(manifest) if item["rows"]], Counter[str]()
        for name, rows in runs:
            tasks[name] += rows
        return cls(
            where,
            tokenized,
            tasks,
            next(filter(None, map(_contents_at, folders)), {}),
            HELD_OUT in refs,
            next(filter(None, map(_reader, places)), None),
            runs=runs,
        )

    def shared_tasks(self, other: DrawnRows) -> dict[str, str]:
        """Return the tasks whose rows both may have: what each is called here, and there."""
        if self.tokenized == other.tokenized:
            return {name: name for name in self.tasks if name in other.tasks}
        theirs = {digest: name for name, digest in other.contents.items() if name in other.tasks}
        return {name: theirs[item] for name, item in self.contents.items() if name in self.tasks and item in theirs}

    def rows(self, task: str) -> NDArray[Any]:
        """Return where the responses of the rows of a task begin, int [rows]."""
        assert self.starts is not None
        ends = accumulate((count for _, count in self.runs), initial=0)
        spans = zip(self.runs, pairwise(ends), strict=True)
        return np.concatenate([self.starts()[first:end] for (name, _), (first, end) in spans if name == task])


def refuse_training_rows(held_out: DrawnRows | None, training: Iterable[DrawnRows | None], where: str) -> None:
    """Refuse rows to evaluate on that are trained on too; warn if nothing says whether they are.

    Args:
        held_out: the rows to evaluate on; None = nothing is known of them.
        training: the rows that are trained on, or may be.
        where: the option and the place of ``held_out``.

    Raises:
        InputError: some rows are both.
    """
    told = held_out is not None and held_out.apart
    for item in training:
        if held_out is None or item is None:
            continue
        told |= held_out.tokenized == item.tokenized or bool(held_out.contents and item.contents)
        if shared := held_out.shared_tasks(item):
            _refuse_shared(held_out, item, shared)
    if not told:
        event(f"{where}: nothing says that these rows are not trained on; {_HINT}", level=logging.WARNING)


def refuse_removed_rows(given: str, option: str) -> None:
    """Refuse a plan, or its arrays, that was drawn before the policy in force took records of its sources out.

    Raises:
        InputError: it may have rows of these records.
    """
    uri = storage.normalise(given, option)
    if storage.scheme(uri) == "file":
        uri = storage.normalise(str(sample_folder.folder_of(uri, option)), option)
    manifest = manifests.read(uri) if policing.is_in_force() else None
    drawn = SampleResult.find(manifest) if manifest is not None and manifest.stage == _SAMPLE else None
    if drawn is None:
        return
    wanted = policing.entries_on({source_of(item["name"]) for item in drawn.sources if item["rows"]})
    if missing := sorted(wanted - {*drawn.policy.get(policing.REMOVALS, ())}):
        raise InputError(
            "the plan was drawn before records of its sources were taken out",
            where=f"{option}={uri}",
            got=f"no word of {', '.join(missing[:_SHOWN])}",
            expected="a plan that was drawn with this policy=",
            hint="draw it again: pairmill sample with the same options and policy=",
        )


def _refuse_shared(held_out: DrawnRows, training: DrawnRows, shared: Mapping[str, str]) -> None:
    if held_out.starts is None or training.starts is None:
        counts = {name: held_out.tasks[name] for name in shared}
    else:
        counts = {
            name: int(np.isin(held_out.rows(name), training.rows(called)).sum()) for name, called in shared.items()
        }
    names = [name for name, count in counts.items() if count]
    if not names:
        return
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    every = f"{sum(counts.values()):,} of {sum(held_out.tasks.values()):,} rows"
    raise InputError(
        "these rows are trained on",
        where=held_out.where,
        got=f"{every}, of {', '.join(names[:_SHOWN])}{more}, which {training.where} takes too",
        expected=_EXPECTED,
        hint=_HINT,
    )


def _sources(manifest: Manifest) -> Rows:
    drawn = SampleResult.find(manifest)
    return drawn.sources if drawn is not None else ()


def _contents_at(uri: str) -> dict[str, str]:
    try:
        return _contents(open_place(uri, Opening(_TOKENIZED, held_out=None)).tasks)
    except InputError:  # a folder of a union is elsewhere
        return {}


def _contents(tasks: Iterable[Dataset]) -> dict[str, str]:
    return {task.name: digest for task in tasks if (digest := task.contents["tokens"].digest)}


def _reader(uri: str) -> Callable[[], NDArray[Any]] | None:
    """Return what reads the first rows of a plan's epochs; None where there is no plan."""
    made = manifests.read(uri, refuse_begun=False)
    if made is None or not any(item.path == _STARTS for item in made.files):
        return None
    return cache(lambda: _starts(uri, made))


def _starts(uri: str, plan: Manifest) -> NDArray[Any]:
    mine: NDArray[Any] = np.load(io.BytesIO(manifests.read_file(uri, plan, _STARTS)), allow_pickle=False)
    base = find_base(uri, plan)
    return mine if base is None else np.concatenate([_starts(base.uri, base.manifest), mine])
