"""A mixture that a sample executes: opened, and checked against the tokenized folder before anything is drawn."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from pairmill import storage
from pairmill.digest import digest_bytes
from pairmill.engine import manifest as manifests
from pairmill.engine.content import Content
from pairmill.engine.manifest import Manifest
from pairmill.errors import InputError, UsageError
from pairmill.formats.tokenized import Folder
from pairmill.mixture import capacity
from pairmill.mixture.plan import BUCKETS, NO_BUCKET, Mixture, identity, long_rows_key
from pairmill.mixture.reading import load_mixture
from pairmill.rules import Key
from pairmill.rules.book import Rules
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.sample.wants import WalkToDraw, Wants

_AGAIN = "run mix again, and give its result"


@dataclass(frozen=True)
class OpenMixture:
    """A plan, and the folder that has the buckets of its tasks.

    Attributes:
        folder: URI.
        manifest: of the folder; None if it has none, or if the plan is not the one that it names.
    """

    plan: Mixture
    folder: str
    manifest: Manifest | None

    @classmethod
    def open(cls, given: str) -> OpenMixture:
        """Open a folder that mix made, or a plan itself, with the buckets beside it.

        Raises:
            InputError: absent, unfinished or damaged, or not a plan.
            UsageError: the sampler could not hold what it asks for.
        """
        uri = storage.normalise(given, "mixture")
        plan = load_mixture(given, "mixture")
        file = storage.name_of(uri).endswith(".json")
        folder = storage.parent_of(uri) if file else uri
        manifest = manifests.read(folder)
        if manifest is not None and file:
            data = storage.store_for(uri).read(uri)
            known = {item.path: item.digest for item in manifest.files}.get(storage.name_of(uri), "")
            manifest = manifest if digest_bytes(data, known) == known else None
        result = cls(plan, folder, manifest)
        capacity.check(plan, f"mixture={uri}")
        return result

    @cached_property
    def digest(self) -> str:
        """Content identity of the plan and its buckets, for fingerprints."""
        buckets = {}
        for task in self.bucketed:
            path = f"{BUCKETS}/{task}.npy"
            buckets[task] = self._digests.get(path) or digest_bytes(self._read(path))
        return identity(self.plan.dump(), buckets)

    @cached_property
    def bucketed(self) -> set[str]:
        """The tasks that are drawn by buckets."""
        return {task for task, bucket in self.plan.tasks if bucket is not None}

    def is_bucketed(self, task: str) -> bool:
        """Return whether a task of the folder is drawn by buckets; a task with no row in a bucket is not in the
        plan."""
        return task in self.bucketed or task not in self.of_task

    def _has_buckets(self, task: str) -> bool:
        if not self.plan.buckets:
            return False
        path = f"{BUCKETS}/{task}.npy"
        uri = storage.join(self.folder, *path.split("/"))
        return path in self._digests or storage.store_for(uri).exists(uri)

    @cached_property
    def of_task(self) -> Mapping[str, list[Key]]:
        """The keys of each task, in the order of their buckets."""
        result: dict[str, list[Key]] = {}
        for task, bucket in sorted(self.plan.tasks, key=lambda key: (key[0], -1 if key[1] is None else key[1])):
            result.setdefault(task, []).append((task, bucket))
        return result

    @cached_property
    def _digests(self) -> Mapping[str, str]:
        return {} if self.manifest is None else {item.path: item.digest for item in self.manifest.files}

    @cached_property
    def _wants(self) -> Mapping[Key, list[int]]:
        return self.plan.wants()

    def applied_to(self, config: SampleConfig) -> SampleConfig:
        """Return the options with those that the plan decides.

        Raises:
            UsageError: an option contradicts the plan.
        """
        plan = self.plan
        for name, planned in {"context_size": plan.context, "min_resp_length": plan.min_resp_length}.items():
            if getattr(config, name) != planned:
                raise UsageError(
                    "differs from the mixture, which counted the rows with another",
                    where=name,
                    got=str(getattr(config, name)),
                    expected=str(planned),
                    hint=f"give {name}={planned}, or run mix again with {name}={getattr(config, name)}",
                )
        if config.seed not in {0, plan.seed}:
            raise UsageError(
                "differs from the mixture",
                where="seed",
                got=str(config.seed),
                expected=str(plan.seed),
                hint="leave it out, or run mix again with this seed",
            )
        return replace(config, epochs=plan.epochs, seed=plan.seed)

    def require_same_inputs(self, folder: Folder, rules: Rules) -> None:
        """Compare the plan with the tokenized folder, and with what the rules say of long rows.

        Raises:
            InputError: the plan was made of another folder or other rules, or tasks are not the same.
        """
        where = f"mixture={self.folder}"
        if self.plan.inputs.tokenized != folder.fingerprint:
            raise InputError(
                "the mixture was planned for another tokenized folder",
                where=where,
                got=self.plan.inputs.tokenized,
                expected=f"{folder.fingerprint}, of tokenized_path={folder.uri}",
                hint="give the folder that it was planned for, or run mix with this one",
            )
        here, planned = {task.name for task in folder.tasks}, set(self.of_task)
        left_out = {name for name in here - planned if not self._has_buckets(name)}
        for names, what, expected in (
            (planned - here, "tasks of the mixture are not in the tokenized folder", "tasks of the folder"),
            (left_out, "tasks of the tokenized folder are not in the mixture", "every task in a source"),
        ):
            if names:
                raise InputError(f"{len(names)} {what}", where=where, got=_some(names), expected=expected, hint=_AGAIN)
        long_rows = long_rows_key({name: rules.match(name)[0].long_context for name in here})
        if self.plan.inputs.long_rows not in {"", long_rows}:
            raise InputError(
                "prefix_config_path says other things of long rows than when the mixture was planned",
                where=where,
                got=long_rows,
                expected=self.plan.inputs.long_rows,
                hint="give each task the long_context that mix read, or run mix again with these rules",
            )

    def refuse_denied(self, denied: Collection[str]) -> None:
        """Raise InputError if rows are planned of a task that a policy leaves out."""
        drawn = [task for task in denied if any(any(self._wants[key]) for key in self.of_task.get(task, ()))]
        if drawn:
            raise InputError(
                "the policy leaves out tasks that the mixture draws",
                where=f"mixture={self.folder}",
                got=_some(drawn),
                hint="run mix with this policy= and policy_on=leave_out, and give its result",
            )

    def wants_of(self, task: str, key: str) -> Wants:
        """Return what to draw of a data set, which has this key in the plan of the sample."""
        if not self.is_bucketed(task):
            (mine,) = self.of_task[task]
            walk = WalkToDraw(f"task\0{key}", rows=self._wants[mine], key=mine)
            return Wants([walk], partial(self._check, task, [mine], None))
        codes = self._codes(task)
        keys = sorted({*self.of_task.get(task, ()), *((task, code) for code in np.unique(codes).tolist())})
        keys = [item for item in keys if item[1] != NO_BUCKET]
        walks = []
        for item in keys:
            known = item in self.plan.tasks
            name = self.plan.buckets[item[1] or 0] if known else str(item[1])
            members = np.flatnonzero(codes == item[1]).astype(np.uint32)
            wants = self._wants[item] if known else ()
            walks.append(WalkToDraw(f"task\0{key}\0{name}", members, rows=wants, key=item if known else None))
        return Wants(walks, partial(self._check, task, keys, len(codes)))

    def key_of(self, task: str, number: int) -> Key:
        """Return the key of a row of a task that is drawn by buckets, by its number in the task's arrays."""
        return task, int(self._codes(task)[number])

    def _check(
        self, task: str, keys: Sequence[Key], codes: int | None, rows: int, pools: Sequence[tuple[int, int]]
    ) -> None:
        """Compare a data set that was drawn with the plan.

        Args:
            keys: of its walks; those of buckets that the plan does not count too.
            codes: rows that have a bucket; None without buckets.
            rows: of it.
            pools: rows that may be sampled, and their response tokens, of each of its walks.

        Raises:
            InputError: its rows are not those that the plan counts.
        """
        if codes not in {None, rows}:
            raise InputError(
                "not the buckets of this task",
                where=self._codes_at(task),
                got=f"uint16 [{codes}]",
                expected=f"uint16 [{rows}], a code for each of its rows",
                hint=_AGAIN,
            )
        unknown = [str(key[1]) for key, pool in zip(keys, pools, strict=True) if key not in self.plan.tasks and pool[0]]
        if unknown:
            raise InputError(
                "rows that may be sampled are in buckets that the mixture does not count",
                where=f"mixture={self.folder}: task {task!r}",
                got=_some(unknown),
                expected=", ".join(str(bucket) for _, bucket in self.of_task.get(task, ())) or "none",
                hint=_AGAIN,
            )
        for key, pool in zip(keys, pools, strict=True):
            if key in self.plan.tasks:
                self._require_same_rows(key, *pool)

    def _require_same_rows(self, key: Key, rows: int, tokens_there: int) -> None:
        planned = self.plan.tasks[key]
        if (rows, tokens_there) == (planned.rows, planned.response_tokens):
            return
        bucket = "" if key[1] is None else f", bucket {self.plan.buckets[key[1]]!r}"
        raise InputError(
            "the rows that may be sampled are not those that the mixture counts",
            where=f"mixture={self.folder}: task {key[0]!r}{bucket}",
            got=f"{rows:,} rows with {tokens_there:,} response tokens",
            expected=f"{planned.rows:,} rows with {planned.response_tokens:,}",
            hint=_AGAIN,
        )

    def _codes_at(self, task: str) -> str:
        return storage.join(self.folder, *f"{BUCKETS}/{task}.npy".split("/"))

    def _codes(self, task: str) -> NDArray[np.uint16]:
        """Return the bucket of each row of a task, those that may not be sampled too."""
        try:
            codes: NDArray[np.uint16] = npy.read_array(
                io.BytesIO(self._read(f"{BUCKETS}/{task}.npy")), allow_pickle=False
            )
        except ValueError as error:
            raise InputError("not an array", where=self._codes_at(task), got=str(error), hint=_AGAIN) from error
        if codes.dtype != np.dtype(np.uint16) or codes.ndim != 1:
            raise InputError(
                "not the buckets of this task",
                where=self._codes_at(task),
                got=f"{codes.dtype} {list(codes.shape)}",
                expected="uint16 [rows], a code for each of its rows",
                hint=_AGAIN,
            )
        return codes

    def _read(self, path: str) -> bytes:
        uri = storage.join(self.folder, *path.split("/"))
        data = storage.store_for(uri).read(uri)
        if path in self._digests:
            known = self._digests[path]
            Content(known, promised=True).require(uri, digest_bytes(data, known))
        return data


def _some(names: Iterable[str]) -> str:
    listed = sorted(names)
    return ", ".join(map(repr, listed[:5])) + (f" and {len(listed) - 5} more" if len(listed) > 5 else "")
