"""``pairmill train_tokenizer``."""

from __future__ import annotations

from collections.abc import Sequence

from pairmill.interface import stagecli
from pairmill.stages.train_tokenizer.core import TrainTokenizer


def main(arguments: Sequence[str]) -> int:
    """Run the stage; return the exit code."""
    return stagecli.main(TrainTokenizer(), arguments)
