"""The run that a run goes on with, if that was on a plan which this one's extends."""

from collections.abc import Mapping

from pairmill import storage
from pairmill.errors import InputError
from pairmill.loader import RowPlan
from pairmill.nets.trained import TrainedCheckpoint
from pairmill.stages.train.data.inputs import Inputs


def find_earlier(given: str, inputs: Inputs) -> str:
    """Return the key of the run that a run goes on with on a plan that extends its own; empty = it is the same run, or
    its checkpoints are refused.

    Args:
        given: ``resume_from``.
        inputs: of the run that goes on.

    Raises:
        InputError: the plan extends another, and that run cannot go on with it; says why.
    """
    result = TrainedCheckpoint.find(storage.normalise(given, "resume_from"))
    if result is None or not isinstance(inputs.plan, RowPlan):
        return ""
    identity = result.says.get("identity")
    if not isinstance(identity, Mapping) or identity.get("data") == inputs.digest:
        return ""
    try:
        inputs.plan.position(result.says["feed"])
    except InputError:
        if any(folder.ancestors for folder in inputs.plan.folders):
            raise
        return ""
    return str(result.says["run"])
