"""``_NODE.json``: facts about this node (seconds, bytes read, what was verified), which the manifest has none of.

In a node's folder it records the state in which a sample's files were last digested
(:class:`pairmill.stages.sample.node.owned.State`): while that is their state they are not read again.
"""

import json
from contextlib import suppress
from typing import Any

from pairmill.stages.sample.node import owned
from pairmill.stages.sample.node.owned import OpenFolder

FACTS = "_NODE.json"


def read_facts(folder: int) -> dict[str, Any]:
    """Return the facts in an open sampled folder; empty if there are none."""
    with suppress(ValueError):
        result = json.loads(owned.read(folder, FACTS) or b"{}")
        return result if isinstance(result, dict) else {}
    return {}


def write_facts(folder: OpenFolder, verified: owned.State, facts: dict[str, Any]) -> None:
    """Record facts, and the state in which the files were verified."""
    folder.write(FACTS, json.dumps({**facts, "verified": verified.signature}).encode())


def is_verified(state: owned.State, facts: dict[str, Any]) -> bool:
    """Return whether the files were digested in this state."""
    return bool(state.signature) and facts.get("verified") == state.signature
