"""The training side: batches from sampled folders and flat token files, resumed exactly on any number of ranks.

:mod:`pairmill.loader.plan` is the idea. Batches are NumPy arrays; :mod:`pairmill.loader.torch` makes tensors of them.
"""

from pairmill.loader.batch import Batch
from pairmill.loader.loader import Loader
from pairmill.loader.mixture import MixturePlan
from pairmill.loader.plan import Phase, TrainingPlan
from pairmill.loader.row_plan import RowPlan
from pairmill.loader.stream import StreamPlan
from pairmill.loader.text import TextStream, eager
from pairmill.loader.windows import Windows

__all__ = [
    "Batch",
    "Loader",
    "MixturePlan",
    "Phase",
    "RowPlan",
    "StreamPlan",
    "TextStream",
    "TrainingPlan",
    "Windows",
    "eager",
]
