"""Sources of which the reference trains on more splits than it should: which are taken is an option."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from pairmill.engine.stage import Profile, option
from pairmill.errors import InputError, UsageError
from sources.card import hub_split
from sources.source import SourceOptions

NONE = "none"
AUTO = "auto"
_HELP = "splits to train on, joined by +; the records of the others are counted and dropped (data_io: all)"


@dataclass(kw_only=True)
class TrainOnly(SourceOptions):
    """The training split, unless others are asked for."""

    splits: str = option("train", help=_HELP)


@dataclass(kw_only=True)
class TrainAndValidation(SourceOptions):
    """Training and validation split."""

    splits: str = option("train+validation", help=_HELP)


@dataclass(kw_only=True)
class BenchmarkOnly(SourceOptions):
    """A benchmark that has a test split alone: nobody trains on it who has not asked for it."""

    splits: str = option(
        AUTO, help=f"{_HELP}; {AUTO} = test, a benchmark's only split, if sources= names the source; with all: none"
    )

    def when_named(self) -> Self:
        """Whoever names a benchmark wants it."""
        return replace(self, splits="test") if self.splits == AUTO else self


def files_by_split(
    files: Sequence[str], card: str, splits: Sequence[str], options: Any, profile: Profile, config: str = "default"
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(files to clean, files withheld) of a Hub data set, split by split in the order of ``splits``.

    Args:
        files: sorted paths.
        card: text of the data set's card.
        splits: all that the reference takes, in its order.
        options: with ``splits``, the wanted ones.
        profile: with data_io all are wanted.
        config: configuration of the data set.

    Raises:
        UsageError: a wanted split is none of ``splits``.
        InputError: a wanted split has no file.
    """
    wanted = [] if options.splits in {NONE, AUTO} else options.splits.split("+")
    unknown = [split for split in wanted if split not in splits]
    if unknown:
        raise UsageError(
            "unknown split", where="splits", got=repr(unknown[0]), expected=f"{NONE}, or some of {'+'.join(splits)}"
        )
    taken: list[str] = []
    withheld: list[str] = []
    for split in splits:
        found = hub_split(files, card, split, config)
        if profile == "data_io" or split in wanted:
            if not found:
                raise InputError(
                    f"no file of the split {split!r}",
                    got=", ".join(files[:5]),
                    expected=f"files of {', '.join(splits if profile == 'data_io' else wanted)}",
                    hint="fetch the data set again",
                )
            taken.extend(found)
        else:
            withheld.extend(found)
    return tuple(taken), tuple(withheld)
