"""``python -m tests.support.processes.archive <root> <URL>``: fetch of files that are in an archive on the web."""

import sys
from pathlib import Path

from pairmill.sources.datasets import SOURCES
from pairmill.sources.origin import Web
from tests.support.stages.fetching import Made, fetch

if __name__ == "__main__":
    SOURCES["made"] = Made("made", Web(sys.argv[2], ("**/train/*.jsonl",)))
    fetch(Path(sys.argv[1]))
