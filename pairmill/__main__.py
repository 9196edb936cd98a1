"""``python -m pairmill``: the command ``pairmill``, where it is not on the path."""

from pairmill.interface.start import main

if __name__ == "__main__":
    raise SystemExit(main())
