"""Extras of the wheel, which bring what only some commands need: how they are installed, and who says so if not."""

import importlib.util
from pathlib import Path

from pairmill.errors import UsageError


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra: into the checkout that this is, or from the package index."""
    checkout = (Path(__file__).parents[1] / "pyproject.toml").is_file()
    return f"pip install '.[{extra}]' in the checkout of pairmill" if checkout else f"pip install 'pairmill[{extra}]'"


def require(extra: str, *modules: str, where: str, instead: str = "") -> None:
    """Raise UsageError unless these modules of an extra are installed.

    Args:
        extra: that brings them.
        modules: by import name.
        where: the command or setting that needs them.
        instead: what else can be done, after the command that installs them.
    """
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"needs {' and '.join(missing)}, not installed here", where=where, hint=how_to_install(extra) + instead
        )
