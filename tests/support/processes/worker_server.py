"""The process that workers of a test are forked from, itself a fork of a nursery.

python -m tests.support.processes.worker_server <descriptor of a listening socket> <descriptor of a pipe>
"""

import sys

from tests.support.processes.forked_workers import serve_forks

if __name__ == "__main__":
    serve_forks(*map(int, sys.argv[1:]))
