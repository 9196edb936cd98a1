"""This folder's modules, and the stages of tests/integration, which make what is looked at here."""

import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
for _folder in (_HERE, _HERE.parent / "integration"):
    if str(_folder) not in sys.path:
        sys.path.insert(0, str(_folder))
