"""Rules: which tasks a line of a file is about, and how much of them is taken."""

from typing import Final

DEFAULT_FILE: Final = "prefix_config.yaml"
"""The default rule file, in the working directory. It is optional."""
Key = tuple[str, int | None]
"""A task and its bucket; the bucket is None if the task is drawn as a whole."""
