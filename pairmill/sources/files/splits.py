"""Which splits of a data set are trained on, where the reference trains on more of them than it should."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from pairmill.engine.options import Profile, option
from pairmill.errors import InputError, UsageError
from pairmill.fields import Checked
from pairmill.sources.files.card import hub_split
from pairmill.sources.quirks import QUIRKS

NONE = "none"
AUTO = "auto"
_HELP = "splits to train on, joined by +; the records of the others are counted and dropped (data_io: all)"


@dataclass(kw_only=True)
class SourceOptions(Checked):
    """Options of one source: a dataclass of :func:`pairmill.engine.stage.option` fields. Most sources have none."""

    def when_named(self) -> Self:
        """Return the options if ``sources=`` names the source instead of taking it with ``all``."""
        return self


@dataclass(kw_only=True)
class SplitOptions(SourceOptions):
    """A source whose splits can be chosen."""

    splits: str


@dataclass(kw_only=True)
class TrainOnly(SplitOptions):
    """The training split, unless others are asked for."""

    splits: str = option("train", help=_HELP)


@dataclass(kw_only=True)
class TrainAndValidation(SplitOptions):
    """The training and the validation split, unless others are asked for."""

    splits: str = option("train+validation", help=_HELP)


@dataclass(kw_only=True)
class BenchmarkOnly(SplitOptions):
    """A benchmark with only a test split. It is left out unless somebody asks for it."""

    splits: str = option(
        AUTO, help=f"{_HELP}; {AUTO} = test, a benchmark's only split, if sources= names the source; with all: none"
    )

    def when_named(self) -> Self:
        """Whoever names a benchmark wants its test split."""
        return replace(self, splits="test") if self.splits == AUTO else self


def files_by_split(
    files: Sequence[str], card: str, splits: Sequence[str], options: SplitOptions, profile: Profile, config: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(files to clean, files withheld) of a Hub data set, in the order of ``splits``.

    Args:
        files: sorted paths.
        card: text of the data set's card.
        splits: every split that the reference takes, in its order.
        options: which of them are wanted.
        profile: data_io takes all of them.
        config: configuration of the data set.

    Raises:
        UsageError: a wanted split is not in ``splits``.
        InputError: a wanted split has no file.
    """
    wanted = [] if options.splits in {NONE, AUTO} else options.splits.split("+")
    unknown = [split for split in wanted if split not in splits]
    if unknown:
        raise UsageError(
            "unknown split", where="splits", got=repr(unknown[0]), expected=f"{NONE}, or some of {'+'.join(splits)}"
        )
    if QUIRKS[profile].all_splits:
        wanted = list(splits)
    taken: list[str] = []
    withheld: list[str] = []
    for split in splits:
        result = hub_split(files, card, split, config)
        if split in wanted and not result:
            raise InputError(
                f"the split {split!r} has no file",
                got=", ".join(files[:5]),
                expected=f"files of {', '.join(wanted)}",
                hint="fetch the data set again",
            )
        (taken if split in wanted else withheld).extend(result)
    return tuple(taken), tuple(withheld)
