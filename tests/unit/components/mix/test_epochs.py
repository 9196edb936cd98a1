"""So many epochs that no memory holds a plan of them are refused at once."""

import pytest

from components.mix.config import MixConfig
from components.mix.settings import MOST_EPOCHS
from pairmill.errors import UsageError


def test_very_many_epochs_are_refused() -> None:
    assert MixConfig(root=".", tokenized_path="x", epochs=MOST_EPOCHS).epochs == MOST_EPOCHS
    with pytest.raises(UsageError, match="epochs"):
        MixConfig(root=".", tokenized_path="x", epochs=100_000_000)
