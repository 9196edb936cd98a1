"""``python -m components.tokenize``."""

from components.tokenize.core import Tokenize
from pairmill.stagecli import main

if __name__ == "__main__":
    raise SystemExit(main(Tokenize()))
