"""Policy lists: which sources, files and tasks may be trained on, with reason and date (docs/policy.md)."""

from contextlib import AbstractContextManager
from typing import Any

from pairmill import storage
from pairmill.engine.policing import enforced


def in_force(config: Any) -> AbstractContextManager[None]:
    """Put the policy of a stage's options in force, if they name one.

    Raises:
        UsageError: the policy is not valid.
    """
    place = getattr(config, "policy", "")
    if not place:
        return enforced(None)
    # Most runs name none, and the room is a twentieth of their start.
    from pairmill.policy import enforce, policy

    root = storage.normalise(config.root, "root") if config.root else ""
    return enforced(enforce.Enforcer(policy.Policy.load(place), getattr(config, "policy_on", "refuse"), root))
