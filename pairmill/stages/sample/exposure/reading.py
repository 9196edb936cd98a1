"""What a training read of a plan: whole epochs, and the first rows of the next one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import Manifest
from pairmill.errors import InputError, UsageError
from pairmill.formats.results.sample import SampleResult
from pairmill.formats.sample_plan import HELD_OUT, read_plan
from pairmill.stages.sample.node.folder import NAME
from pairmill.stages.sample.node.plan import VERSION, sizes_of

_PLACE: Final = re.compile(r"(?P<plan>.+?):(?P<epochs>\d{1,9})(?::(?P<rows>\d{1,12}))?")
_FORM: Final = "<plan>:<epoch> or <plan>:<epoch>:<row>, as runs/sample/<fingerprint>:3:1000"


@dataclass(frozen=True)
class Reading:
    """What was read of a plan.

    Attributes:
        uri: folder of the plan.
        epochs: how many were read to the end.
        rows: of the next one that were read.
        first: the epoch that was read first; those before it were not.
    """

    uri: str
    manifest: Manifest
    epochs: int
    rows: int = 0
    first: int = 0

    @classmethod
    def parse(cls, text: str, option: str, root: str = "") -> Reading:
        """Read ``<plan>:<epoch>[:<row>]``; the plan is a folder, or a fingerprint below ``root``.

        Raises:
            UsageError: it is not such a text, or the plan has no such epoch or row.
            InputError: there is no such plan, or it does not say which rows are whose.
        """
        parsed = _PLACE.fullmatch(text)
        if parsed is None:
            raise UsageError("not a place in a plan", where=option, got=text, expected=_FORM)
        return cls.open(parsed["plan"], int(parsed["epochs"]), int(parsed["rows"] or 0), option, root)

    @classmethod
    def open(cls, plan: str, epochs: int | None, rows: int, option: str, root: str = "") -> Reading:
        """Open a plan of which this was read; ``epochs``: None = all. Raises as :meth:`parse`."""
        given = storage.join(root, NAME, plan) if root and manifests.is_fingerprint(plan) else plan
        uri, manifest = read_plan(given, option)
        if manifest.version != VERSION or not all(
            item.get("key") for item in SampleResult.from_manifest(manifest).sources
        ):
            raise InputError(
                "the plan does not say which rows are whose: an older pairmill made it, or it is of profile=data_io",
                where=f"{option}={uri}",
                got=f"version {manifest.version}",
                expected=f"version {VERSION}, of profile=pairmill",
                hint="plan again with this pairmill; of a folder of data_io, pairmill sample exposure path=<folder>",
            )
        if any(ref.role == HELD_OUT for ref in manifest.inputs):
            hint = "give a plan to train on"
            raise UsageError("a plan of held-out rows is not trained on", where=option, got=uri, hint=hint)
        sizes = sizes_of(manifest)[1]
        epochs = len(sizes) if epochs is None else epochs
        most = f"epoch {len(sizes)}, row 0, the end of the plan"
        if epochs > len(sizes):
            raise UsageError(
                "the plan has no such epoch", where=option, got=f"epoch {epochs}", expected=f"at most {most}"
            )
        if rows > (left := sizes[epochs] if epochs < len(sizes) else 0):
            expected = f"at most {left:,}, the rows of epoch {epochs}" if left else most
            raise UsageError("the epoch has no such row", where=option, got=f"{rows:,}", expected=expected)
        return cls(uri, manifest, epochs, rows)

    @cached_property
    def result(self) -> SampleResult:
        return SampleResult.from_manifest(self.manifest)

    @property
    def place(self) -> str:
        """What was read, whatever the place of the plan: the fingerprint of an input."""
        return f"{self.manifest.fingerprint}:{self.epochs}:{self.rows}"

    def chain(self) -> list[Reading]:
        """Return this, and before it what was read of the plans that it goes on after; the first one comes first.

        Raises:
            InputError: one of them is not beside the plan after it.
        """
        chain = [self]
        while recorded := chain[0].result.after:
            chain.insert(0, chain[0].before(recorded))
        return chain

    def before(self, recorded: Any) -> Reading:
        """Open what a manifest records of the plan before, which is beside this one."""
        uri = storage.join(storage.parent_of(self.uri), recorded["plan"])
        if not storage.store_for(uri).exists(storage.join(uri, manifests.MANIFEST)):
            raise InputError(
                "the plan that this one goes on after is missing",
                where=self.uri,
                expected=uri,
                hint="copy that folder there too: it says what the model saw before",
            )
        return self.open(uri, recorded["epochs"], recorded["rows"], "after")
