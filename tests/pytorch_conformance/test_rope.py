"""Rotations of HRM-Text: tables and a rotated tensor."""

from pathlib import Path

import torch
from safetensors.torch import load_file

from pairmill.nets import rope

WITHIN = 1e-6


def test_tables_and_rotation_are_those_recorded(train: Path) -> None:
    recorded = load_file(train / "rope.safetensors")
    width = recorded["cos"].shape[1]
    assert len(recorded["cos"]) > int(recorded["position_ids"].max())
    cos, sin = rope.angles(torch.arange(len(recorded["cos"])), width, 10_000.0)
    torch.testing.assert_close(torch.cat((cos, cos), 1), recorded["cos"], rtol=0, atol=WITHIN)
    torch.testing.assert_close(torch.cat((sin, sin), 1), recorded["sin"], rtol=0, atol=WITHIN)
    y = rope.rotate(recorded["x"], *rope.angles(recorded["position_ids"], width, 10_000.0))
    torch.testing.assert_close(y, recorded["y"], rtol=0, atol=WITHIN)
