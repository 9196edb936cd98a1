"""How an extra is installed, and who says so."""

from pathlib import Path

import pytest

from pairmill import extras
from pairmill.errors import UsageError


def test_the_line_is_for_a_checkout_or_for_the_index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert extras.how_to_install("train") == "pip install '.[train]' in the checkout of pairmill"
    monkeypatch.setattr(extras, "__file__", str(tmp_path / "site-packages" / "pairmill" / "extras.py"))
    assert extras.how_to_install("train") == "pip install 'pairmill[train]'"


def test_what_is_missing_is_named_with_what_else_can_be_done() -> None:
    extras.require("train", "json", where="train")
    with pytest.raises(UsageError) as caught:
        extras.require("train", "json", "no_torch", "no_safetensors", where="train", instead="; or do without")
    assert str(caught.value).startswith("train: needs no_torch and no_safetensors, not installed here; pip install '")
    assert str(caught.value).endswith("; or do without")
