"""The table of the line, and what the options of its stages say of themselves."""

import dataclasses

from pairmill.engine.candidates import MAKERS
from pairmill.line.stages import EVERY
from pairmill.line.table import HELD_OUT, LINE

FOLDERS = {"train_tokenizer": "tokenizer"}
OPTIONAL = {"mix.rows", "sample.mixture", "curate.raw", "train.held_out"}
"""Inputs without which a stage does something else: left out, they stay so."""


def test_each_input_of_the_line_takes_what_the_task_before_it_makes() -> None:
    inspected = set()
    for task in LINE:
        fields = {item.name: item for item in dataclasses.fields(EVERY[task.stage].config)}
        for option, source in task.reads.items():
            kind = fields[option].metadata["takes"]
            name = f"{task.stage}.{option}"
            assert bool(kind) != (name in OPTIONAL), name
            if kind and source != HELD_OUT:
                assert FOLDERS.get(source, source) in MAKERS[kind], name
            assert not set(fields[option].metadata["unless"]) - fields.keys(), name
            inspected.add(name)
    assert inspected >= OPTIONAL
