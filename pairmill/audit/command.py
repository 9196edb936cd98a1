"""``pairmill audit <plan> …``."""

import os
from collections.abc import Sequence

from pairmill.audit.core import Audit
from pairmill.interface import stagecli
from pairmill.interface.cli import name_first


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code. The project is that of the plan, unless it is named."""
    given = name_first(arguments, "plan")
    plan = next((text.removeprefix("plan=") for text in given if text.startswith("plan=")), "")
    if plan and not any(text.startswith("root=") for text in given):
        place = plan if "://" in plan else os.path.abspath(plan)
        given.append(f"root={place.rstrip('/').rsplit('/', 2)[0] or '/'}")
    return stagecli.main(Audit(), given)
