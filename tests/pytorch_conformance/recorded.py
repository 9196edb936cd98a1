"""Where the recorded cases of training are: below PAIRMILL_SHARED (default ../shared)."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TRAIN = (ROOT / os.environ.get("PAIRMILL_SHARED", "../shared")).resolve() / "conformance" / "train"


def cases(folder: str, pattern: str = "*.json") -> list[Path]:
    """The recorded files of a folder, for ``parametrize``; no file is an error, and not a test less.

    Args:
        folder: below ``conformance/train``; "" = itself.
        pattern: of the files' names.
    """
    found = sorted((TRAIN / folder).glob(pattern))
    # Where nothing is recorded at all, the fixture says so, once for each test.
    if not found and TRAIN.is_dir():
        raise FileNotFoundError(f"no recorded case is {TRAIN / folder / pattern}")
    return found
