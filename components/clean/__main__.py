"""``python -m components.clean``."""

from components.clean.core import Clean
from pairmill.stagecli import main

if __name__ == "__main__":
    raise SystemExit(main(Clean()))
