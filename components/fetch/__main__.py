"""``python -m components.fetch``."""

from components.fetch.core import Fetch
from pairmill.stagecli import main

if __name__ == "__main__":
    raise SystemExit(main(Fetch()))
