"""The data sets, one file each. To add one: its file here, its fixture, one line below."""

from __future__ import annotations

from components.clean.source import Source
from components.clean.sources.dmmath import DmMath
from components.clean.sources.gsm8k_train import Gsm8kTrain
from components.clean.sources.scibench import SciBench
from components.clean.sources.sudoku import Sudoku

SOURCES: dict[str, Source] = {source.name: source for source in (DmMath(), Gsm8kTrain(), SciBench(), Sudoku())}
