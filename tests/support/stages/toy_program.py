"""The toy stage as a module that a nursery runs."""

import sys

from pairmill.interface import stagecli
from tests.support.stages.toy_stage import Toy

if __name__ == "__main__":
    raise SystemExit(stagecli.main(Toy(), sys.argv[1:]))
