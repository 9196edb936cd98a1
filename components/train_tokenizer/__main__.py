"""``python -m components.train_tokenizer``."""

if __name__ == "__main__":  # before the imports, which take half a second
    from pairmill.interface.interrupt import quiet

    quiet()

from components.train_tokenizer.core import TrainTokenizer
from pairmill.interface.stagecli import main

if __name__ == "__main__":
    raise SystemExit(main(TrainTokenizer()))
