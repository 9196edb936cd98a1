"""The options of ``pairmill show``."""

from dataclasses import dataclass
from typing import NamedTuple, Self

from pairmill.engine.options import option
from pairmill.errors import UsageError


@dataclass(kw_only=True)
class ShowConfig:
    """Print rows, tokens, samples and batches as a model sees them, or what differs between two plans or tokenizers."""

    path: str = option(
        "",
        help="a finished folder, which may be given without path=: rows, tokens, a plan, sampled arrays, a tokenizer; "
        "of any other its report is printed",
    )
    tokenized: str = option("", help="the same as path")
    root: str = option(
        "", help="project folder or URI: its only tokenized folder, in place of path; of sampled arrays their project"
    )
    row: list[str] = option(
        [],
        help="rows to show: <task>:<n>, n from 0 as in the row file; of a plan or arrays <epoch>:<place>; several "
        "joined by commas; empty = the first",
    )
    task: str = option("", help="show the first rows of this task")
    n: int = option(0, help="rows to show or to compare; 0 = 3 to show, 20 to compare", at_least=0)
    ids: bool = option(False, help="also a line for each token: place, id, whether it is learned, text")
    batch: int = option(
        -1, help="of sampled arrays: the global batch of this number, from 0, as it is packed", at_least=-1
    )
    batch_tokens: int = option(0, help="with batch: tokens of a global batch; 0 = four of the longest rows", at_least=0)
    ranks: int = option(1, help="with batch: ranks that share it", at_least=1)
    diff: str = option("", help="a second plan or tokenizer: print what differs from it")
    text: str = option("", help="of tokenizers: the text that they encode; empty = texts of rows=")
    tokenizer: str = option("", help="the tokenizer.json that made the ids, or a folder with it, if it is not at hand")
    rows: list[str] = option(
        [], help="folders of the rows, if they are not below the root that the tokenized folder is below"
    )
    check_server: str = option("", help="URL of a server, to compare the ids of prompts with those that it makes")
    model: str = option("", help="name of the model on the server; empty = its only one", needs="check_server")


class Wanted(NamedTuple):
    """A row of a task; of a sample the task is the number of an epoch."""

    task: str
    number: int

    @classmethod
    def parse(cls, text: str, expected: str = "<task>:<n>, as in flan:17") -> Self:
        """Read ``<task>:<n>``. Raises UsageError if it is anything else."""
        task, separator, number = text.rpartition(":")
        if not separator or not number.isdecimal():
            raise UsageError("not a row", where="row", got=repr(text), expected=expected)
        return cls(task, int(number))
