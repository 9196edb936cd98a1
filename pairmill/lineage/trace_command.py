"""``pairmill trace``: from a step of a training to its rows and their records."""

from collections.abc import Sequence

from pairmill.interface import cli
from pairmill.lineage import trace
from pairmill.lineage.trace_config import TraceConfig
from pairmill.show.lines import write


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    return cli.program(
        "trace", TraceConfig, arguments, lambda: write(trace.show(cli.build(TraceConfig, cli.split(arguments))))
    )
