"""``python -m components.train_tokenizer``."""

from components.train_tokenizer.core import TrainTokenizer
from pairmill.stagecli import main

if __name__ == "__main__":
    raise SystemExit(main(TrainTokenizer()))
