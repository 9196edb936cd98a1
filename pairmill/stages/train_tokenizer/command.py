"""``pairmill train_tokenizer``."""

from functools import partial

from pairmill.interface import cli
from pairmill.stages.train_tokenizer.config import TrainTokenizerConfig

main = partial(cli.main, "train_tokenizer", TrainTokenizerConfig, "pairmill.stages.train_tokenizer.core:TrainTokenizer")
