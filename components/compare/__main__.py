"""``python -m components.compare``."""

if __name__ == "__main__":  # before the imports, which take half a second
    from pairmill.interface.interrupt import quiet

    quiet()

from components.compare.core import Compare
from pairmill.interface.stagecli import main

if __name__ == "__main__":
    raise SystemExit(main(Compare()))
