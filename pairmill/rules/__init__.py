"""Rules: which tasks a line of a file is about, and how much of them is taken."""

from typing import Final

DEFAULT_FILE: Final = "prefix_config.yaml"
"""The default rule file, in the working directory. It is optional."""
