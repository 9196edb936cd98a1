"""A plan that is drawn again with another seed: all but the seed is what its manifest says."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import Manifest
from pairmill.errors import InputError, UsageError
from pairmill.formats.results.sample import SampleResult
from pairmill.formats.sample_plan import CHOICES, HELD_OUT, PARTS, read_plan
from pairmill.formats.tokenized import Folder
from pairmill.formats.tokenized_path import open_tokenized, stored
from pairmill.rules.book import IdleRule, Rules
from pairmill.rules.rule import Rule
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.sample.mixed import OpenMixture

_MIX, _TOKENIZE = "mix", "tokenize"
_MOST: Final = 1000
"""Mixtures of a project that are looked through, the newest name last."""


class RecordedRules(Rules):
    """The rules that a plan was drawn by, as its manifest says them: task by task, without their file."""

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(where="the rules of the plan")
        result = SampleResult.from_manifest(manifest)
        self._of = {name: Rule.from_manifest(rule) for name, rule in result.rules.items()}
        self._named: Mapping[str, str | None] = result.prefixes
        self._idle = [IdleRule(label, result.hidden_rules.get(label, "")) for label in result.idle_rules]
        self._groups = result.group_of_task
        self._recorded = next(ref.fingerprint for ref in manifest.inputs if ref.role == "rules")

    @property
    def is_empty(self) -> bool:
        return not any(self._named.values())

    def match(self, task: str) -> tuple[Rule, bool]:
        return self._of[task], False

    def label_of(self, task: str) -> str | None:
        return self._named[task]

    def group_of(self, task: str) -> str | None:
        return self._groups.get(task)

    def idle(self, tasks: Iterable[str], *, long_rows: bool = False) -> list[IdleRule]:
        return list(self._idle)

    def digest(self) -> str:
        return self._recorded


def read_again(config: SampleConfig) -> tuple[SampleConfig, Folder, Rules, OpenMixture | None]:
    """Return the options, tokens, rules and mixture that ``again=<plan>@<seed>`` asks for.

    Raises:
        UsageError: it is not a plan and a seed.
        InputError: the plan, its tokens or its mixture is not there.
    """
    place, _, number = config.again.rpartition("@")
    if not place or not number.isdecimal():
        raise UsageError("not a plan and a seed", where="again", got=config.again, expected="<plan>@<seed>")
    uri, manifest = read_plan(place, "again")
    refs = {ref.role: ref.fingerprint for ref in manifest.inputs}
    if HELD_OUT in refs:
        raise UsageError("held-out rows are drawn once, each", where="again", got=uri, expected="a plan to train on")
    if CHOICES in refs:
        raise UsageError(
            "the rules of this plan choose single rows, and their files say which",
            where="again",
            got=uri,
            hint="give prefix_config_path= and the other options of the plan, with the new seed=",
        )
    if PARTS in refs:
        hint = "give compose= and the other options of the plan, with the new seed="
        raise UsageError("the plan is put together of others", where="again", got=uri, hint=hint)
    root = storage.parent_of(storage.parent_of(uri))
    options: dict[str, Any] = {**manifest.options, "seed": int(number)}
    tokenized = config.tokenized_path or stored(root, refs["tokenized"])
    if recorded := SampleResult.from_manifest(manifest).after:
        before = storage.join(storage.parent_of(uri), recorded["plan"])
        options["after"] = f"{before}:{recorded['epochs']}:{recorded['rows']}"
    options["tokenized_path"] = tokenized or storage.join(root, _TOKENIZE, refs["tokenized"])
    known = {name: options[name] for name in options if hasattr(config, name)}
    layout = config.layout if config.layout != "auto" else SampleResult.from_manifest(manifest).layout
    config = replace(config, again="", layout=layout, unmatched="leave" if "unmatched" in refs else "take", **known)
    rules = RecordedRules(manifest)
    folder = open_tokenized(
        config.tokenized_path,
        "tokenized_path",
        tolerate_strays=config.profile == "pairmill",
        verify=config.verify,
        tasks=config.tasks,
    )
    if folder.fingerprint != refs["tokenized"]:
        raise InputError(
            "the plan was drawn from another folder",
            where=f"tokenized_path={folder.uri}",
            got=folder.fingerprint,
            expected=refs["tokenized"],
        )
    mixed = None
    if "mixture" in refs:
        result = _mixture(root, refs["mixture"])
        mixed = replace(result, plan=replace(result.plan, seed=config.seed))
    return config, folder, rules, mixed


def _mixture(root: str, digest: str) -> OpenMixture:
    """Return the mixture of a project that has this digest."""
    top = storage.join(root, _MIX)
    store = storage.store_for(top)
    names = sorted(name for name in store.folders(top) if manifests.is_fingerprint(name))
    for name in names[-_MOST:]:
        folder = storage.join(top, name)
        if store.exists(storage.join(folder, manifests.MANIFEST)):
            result = OpenMixture.open(folder)
            if result.digest == digest:
                return result
    raise InputError(
        "the mixture of the plan is not in its project",
        where=top,
        got=f"{len(names)} mixtures",
        expected=f"the one with digest {digest}",
        hint="a plan is drawn again from mixtures that mix made below the same root",
    )
