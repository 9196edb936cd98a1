"""``python -m components.tokenize``."""

if __name__ == "__main__":  # before the imports, which take half a second
    from pairmill.interface.interrupt import quiet

    quiet()

from components.tokenize.core import Tokenize
from pairmill.interface.stagecli import main

if __name__ == "__main__":
    raise SystemExit(main(Tokenize()))
