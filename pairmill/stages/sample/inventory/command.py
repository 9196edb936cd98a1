"""``pairmill sample inventory plan=…``: what is in a plan, by source."""

from pairmill import storage
from pairmill.formats.sample_plan import read_plan
from pairmill.policy.enforce import Enforcer
from pairmill.policy.policy import Policy
from pairmill.stages.sample.inventory.config import InventoryConfig
from pairmill.stages.sample.inventory.lines import Inventory
from pairmill.stages.sample.inventory.pages import write


def inventory(config: InventoryConfig) -> str:
    """Return the inventory of a plan in the format that is asked for.

    Raises:
        InputError: it is not a plan.
        InternalError: its sums are not those of the plan.
    """
    uri, manifest = read_plan(config.plan, "plan")
    root = storage.parent_of(storage.parent_of(uri))
    judge = Enforcer(Policy.load(config.policy), root=root).judge if config.policy else None
    return write(Inventory.from_manifest(manifest, judge), config.group_by, config.format)
