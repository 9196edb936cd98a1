"""The whole line in this process, from generated raw files with odd records in them to arrays."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pairmill.interface import stagecli
from pairmill.interface.cli import Outcome
from pairmill.stages.clean.core import Clean
from pairmill.stages.fetch.core import Fetch
from pairmill.stages.sample import run as sample
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.tokenize.core import Tokenize
from pairmill.stages.train_tokenizer.core import TrainTokenizer
from tests.support import tools

RECORDS, ODD, LIMIT, EPOCHS = 240, 20, 200, 2
"""Records of each of eight raw files; those of gsm8k that are malformed; rows of dmmath files to use; epochs."""


def stages(base: Path) -> dict[str, Callable[[], Outcome]]:
    """Every stage, to be run in this order, once or more."""
    raw, root = base / "raw", base / "root"
    tools.raw_data(raw, size=RECORDS)
    records = tools.gsm8k(RECORDS)
    for record in records[:ODD]:
        record["answer"] = "no mark of an answer"
    tools.write_gsm8k(raw / "gsm8k_train" / "main" / "train-00000-of-00001.parquet", records)
    rules = str(tools.rules(base / "rules.yaml", f"- prefix: dmmath__\n  max_per_file: {LIMIT}\n"))
    made: dict[str, str] = {}

    def run(stage: Any, **options: object) -> Outcome:
        outcome = stagecli.run(stage, stage.config(root=str(root), workers=1, **options))
        made[stage.name] = str(outcome.parameters["output"])
        return outcome

    def train() -> Outcome:
        options = {"vocab_size": 500, "prefix_config_path": rules, "limit_mul_factor": 1}
        return run(TrainTokenizer(), rows=[made["clean"]], **options)

    def sampled() -> Outcome:
        config = SampleConfig(
            tokenized_path=made["tokenize"],
            root=str(root),
            output_path=str(base / "arrays"),
            prefix_config_path=rules,
            epochs=EPOCHS,
        )
        return sample.run(config)

    return {
        "fetch": lambda: run(Fetch(), raw=str(raw), sources=sorted(path.name for path in raw.iterdir())),
        "clean": lambda: run(Clean(), raw=made["fetch"], max_reject_fraction=0.5),
        "train_tokenizer": train,
        "tokenize": lambda: run(Tokenize(), rows=[made["clean"]], tokenizer=made["train_tokenizer"]),
        "sample": sampled,
    }


def ledger(outcome: Outcome) -> dict[str, Any]:
    """What the manifest of an outcome says of its rows."""
    found: dict[str, Any] = json.loads(outcome.manifest())["ledger"]
    return found
