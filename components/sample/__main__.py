"""``python -m components.sample``."""

from components.sample.config import SampleConfig
from components.sample.core import NAME, run
from pairmill import cli

if __name__ == "__main__":
    raise SystemExit(cli.main(NAME, SampleConfig, run))
