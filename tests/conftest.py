"""What every test can import: this folder's modules and the toy stage beside the unit tests."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pairmill import log

_TESTS = Path(__file__).resolve().parent
# Worker processes inherit sys.path, so a stage defined in a test module can be found by them.
for _folder in (_TESTS, _TESTS / "unit"):
    if str(_folder) not in sys.path:
        sys.path.insert(0, str(_folder))

pytest_plugins = ["objectstores.fixtures"]

# A shell starts background jobs with SIGINT ignored, and children inherit that: Ctrl-C could not be tested.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _quiet_logger(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Logs of one test never depend on another's terminal or handler."""
    monkeypatch.delenv("PAIRMILL_LOG", raising=False)
    yield
    log.logger().handlers.clear()
    log.logger().propagate = True
