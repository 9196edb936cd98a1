"""So many epochs that no memory holds a plan of them are refused at once."""

import pytest

from pairmill.errors import UsageError
from pairmill.mixture.plan import MOST_EPOCHS
from pairmill.mixture.settings import MixSettings
from pairmill.stages.mix.config import MixConfig


def test_very_many_epochs_are_refused() -> None:
    assert MixConfig(root=".", tokenized_path="x", epochs=MOST_EPOCHS).epochs == MOST_EPOCHS
    with pytest.raises(UsageError, match="epochs"):
        MixConfig(root=".", tokenized_path="x", epochs=100_000_000)


def test_the_epochs_of_all_phases_count_together() -> None:
    phase = "{{name: {}, until: {}, epochs: 6000}}"
    settings = MixSettings.parse(f"method: unimax\nphases: [{phase.format('first', 0.5)}, {phase.format('last', 1)}]")
    with pytest.raises(UsageError, match="too many epochs in all phases together; got 12,000; expected at most 10,000"):
        settings.wanted(1)
