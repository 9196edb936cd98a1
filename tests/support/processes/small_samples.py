"""``python -m tests.support.processes.small_samples run …``: a run whose estimates take samples of 60 kB."""

import sys

from pairmill.line import dry_run, run

if __name__ == "__main__":
    dry_run.SAMPLE_BYTES = 60_000
    sys.exit(run.main(sys.argv[2:]))
