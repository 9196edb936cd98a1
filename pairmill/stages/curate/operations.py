"""The operations of curate: an entry each, in the order in which they are asked about a row.

The first that drops a row owns its ledger reason.
"""

from typing import Any

from pairmill.stages.curate.decontaminate import DECONTAMINATE
from pairmill.stages.curate.exact_settings import EXACT
from pairmill.stages.curate.filters import FILTER
from pairmill.stages.curate.near.settings import NEAR
from pairmill.stages.curate.operation import Operation
from pairmill.stages.curate.scores.classifiers import CLASSIFIERS
from pairmill.stages.curate.scores.heuristics import HEURISTICS
from pairmill.stages.curate.scores.judge import JUDGE
from pairmill.stages.curate.scores.language import LANGUAGE
from pairmill.stages.curate.scores.perplexity import PERPLEXITY
from pairmill.stages.curate.scores.pii import PII

OPERATIONS: tuple[Operation[Any], ...] = (
    EXACT,
    NEAR,
    DECONTAMINATE,
    HEURISTICS,
    LANGUAGE,
    PERPLEXITY,
    CLASSIFIERS,
    JUDGE,
    FILTER,
    PII,
)


def names() -> list[str]:
    """Return the names of the operations, in order."""
    return [operation.name for operation in OPERATIONS]


def of_folder(name: str) -> Operation[Any]:
    """Return the operation that a folder of decisions is of; a classifier's has the classifier's name."""
    return next((operation for operation in OPERATIONS if operation.name == name), CLASSIFIERS)


def in_order(folders: Any) -> list[str]:
    """Sort names of folders in the order in which operations are asked about a row, classifiers by their names."""
    order = {operation.name: at for at, operation in enumerate(OPERATIONS)}
    return sorted(folders, key=lambda name: (order[of_folder(name).name], name))
