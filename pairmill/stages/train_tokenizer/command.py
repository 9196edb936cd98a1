"""``pairmill train_tokenizer``."""

from functools import partial

from pairmill.interface import stagecli
from pairmill.stages.train_tokenizer.core import TrainTokenizer

main = partial(stagecli.main, TrainTokenizer())
