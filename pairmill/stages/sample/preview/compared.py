"""Tokens of groups under these rules beside those of a plan that was drawn, or of other rules."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.errors import InputError, UsageError
from pairmill.formats.results.sample import SampleResult
from pairmill.rules.book import Rules
from pairmill.stages.sample.analytics import Stats
from pairmill.stages.sample.node.folder import NAME
from pairmill.stages.sample.preview.expected import Forecast

ELSEWHERE: Final = "(not in this folder)"
"""The group of tasks that only the plan has."""


@dataclass(frozen=True)
class Difference:
    """Tokens that an epoch has of a group: by the plan or the rules that are compared, and by these rules.

    Attributes:
        before: tokens, by the other ones.
        after: tokens.
        share_before: of all tokens of an epoch.
        share_after: of all tokens of an epoch.
    """

    name: str
    before: float
    after: float
    share_before: float
    share_after: float


def compare(given: str, now: Forecast, solve: Callable[[Rules], Forecast]) -> list[Difference]:
    """Compare with a plan's folder or a rule file.

    Raises:
        UsageError: it is neither, or the rules are wrong.
        InputError: the plan is damaged.
    """
    other = _tokens(given, solve)
    names = [group.name for group in now.solved.groups]
    groups = dict(zip(now.names, (names[place] for place in now.solved.group_of), strict=True))
    before: dict[str, float] = {}
    for task, tokens in other.items():
        group = groups.get(task, ELSEWHERE)
        before[group] = before.get(group, 0.0) + tokens
    after = {line.name: line.tokens for line in now.groups}
    whole_before, whole_after = sum(before.values()) or 1.0, sum(after.values()) or 1.0
    return [
        Difference(
            name, was := before.get(name, 0.0), then := after.get(name, 0.0), was / whole_before, then / whole_after
        )
        for name in {**after, **before}
    ]


def _tokens(given: str, solve: Callable[[Rules], Forecast]) -> Mapping[str, float]:
    """Return the tokens that an epoch has of each task."""
    uri = storage.normalise(given, "compare")
    manifest = manifests.read(uri)
    if manifest is not None:
        if manifest.stage != NAME:
            raise InputError(
                "not the plan of a sample", where=f"compare={uri}", got=f"what {manifest.stage} made", hint=_HINT
            )
        result, epochs = SampleResult.from_manifest(manifest), manifest.ledger.measures["epochs"]
        drawn = {name: Stats(**values) for name, values in result.stats.items()}
        return {name: stats.cov_toks / epochs for name, stats in drawn.items()}
    if not storage.store_for(uri).exists(uri):
        raise UsageError("neither a plan nor a file of rules", where=f"compare={uri}", hint=_HINT)
    made = solve(Rules.load(given, "pairmill", "compare"))
    return dict(zip(made.names, made.solved.tokens.tolist(), strict=True))


_HINT = "give the folder that sample printed, or a file as for prefix_config_path"
