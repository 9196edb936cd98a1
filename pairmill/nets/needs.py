"""What the extra ``train`` installs."""

from __future__ import annotations

import importlib.util

from pairmill.errors import UsageError


def require(command: str, *modules: str) -> None:
    """Raise UsageError if one of these modules is not installed; ``command`` names what needs it."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"needs {' and '.join(missing)}, not installed here",
            where=command,
            hint="pip install '.[train]' in a checkout of pairmill, or use the image trainer",
        )
