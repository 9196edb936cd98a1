"""The inventory of a plan: its tables to the byte, its sums, and what happens if they do not add up."""

import csv
import io
import json
from typing import Any

import pytest

from pairmill.engine.manifest import File, InputRef, Ledger, Manifest
from pairmill.errors import InternalError
from pairmill.formats.results.sample import SampleResult
from pairmill.stages.sample.inventory.lines import Inventory
from pairmill.stages.sample.inventory.pages import composition_of, write

EPOCHS = 2
STATS = {
    "flan__a.parquet": (10, 100, 200, 20, 200, 400, 10, 300),
    "flan__b.parquet": (30, 300, 300, 3, 30, 30, 3, 60),
    "gsm8k.jsonl": (5, 50, 50, 40, 400, 400, 5, 100),
    "wmt.jsonl": (7, 70, 70, 0, 0, 0, 0, 0),
}
KEYS = ("rows", "itoks", "rtoks", "cov_rows", "cov_itoks", "cov_rtoks", "unique_rows", "unique_toks")
FACTS = {
    "flan": {
        "origin": "hub:org/flan@main",
        "licence": "Apache-2.0",
        "revision": "0a1b",
        "language": "en",
        "rows_in": 50,
    },
    "gsm8k": {"origin": "https://x.org/g.jsonl", "licence": "MIT", "revision": "as given", "rows_in": 5},
}
DECISIONS = {
    "decisions": {
        "flan": [{"decision": "allow", "reason": "agreement", "why": "signed", "date": "2026-08-01", "subjects": 2}],
        "wmt": [{"decision": "deny", "reason": "robots", "why": "disallowed", "date": "2026-08-01", "subjects": 1}],
    },
    "left_out": ["wmt.jsonl"],
}

GOLDEN = """\
## Inventory by source

Rows and tokens of an epoch are means over the epochs. A source is what the sampler sees: rows that may be drawn, cut \
to the context. Caps, repeats and what a policy leaves out are included. A dash is not known.

| Source | Data set | Tasks | Published rows | Source rows | Source tokens | Rows/epoch | Tokens/epoch | Share \
| Unique rows | Passes/epoch | Passes in all | Form | Licence | Revision | Decision | Language |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
| gsm8k | [https://x.org/g.jsonl](https://x.org/g.jsonl) | 1 | 5 | 5 | 100 | 20 | 400 | 54.79452 % | 5 | 4.000 | 8.000 \
| converted | MIT | – | – | – |
| flan | [org/flan](https://huggingface.co/datasets/org/flan) | 2 | 50 | 40 | 900 | 11.50 | 330 | 45.20548 % | 13 \
| 0.287 | 0.575 | converted | Apache-2.0 | 0a1b | allow | en |
| wmt | – | 1 | – | 7 | 140 | 0 | 0 | 0.00000 % | 0 | 0.000 | 0.000 | – | – | – | deny | – |
| all | – | 4 | – | 52 | 1,140 | 31.50 | 730 | 100.00000 % | 18 | 0.606 | 1.212 | – | – | – | – | – |

## Sources under agreements

| Source |
|---|
| flan |

## Sums

Compared with the totals and the epochs of the plan, to the token.

| Of | Count |
|---|---|
| Lines | 3 |
| Tasks | 4 |
| Rows over all epochs | 63 |
| Tokens over all epochs | 1,460 |
| Tokens of an epoch | 730 |
| Share | 100.00000 % |

## Cross-check of rules and tasks

| What | Name |
|---|---|
| rule at 0 | wmt |
| rule without a task | nobody |
| task without a rule | gsm8k.jsonl |
| left out by the policy | wmt.jsonl |
"""


def plan(**measures: int) -> Manifest:
    stats = {name: dict(zip(KEYS, values, strict=True)) for name, values in STATS.items()}
    result = SampleResult(
        layout="compact",
        stats=stats,
        sources=[],
        prefixes={
            name: None if name.startswith("gsm8k") else name.partition(".")[0].partition("__")[0] for name in stats
        },
        idle_rules=["nobody"],
        policy=DECISIONS,
        facts=FACTS,
    )
    sums = {"epochs": EPOCHS, "tokens_sampled": 1460, "response_tokens_sampled": 830, "unique_tokens": 460}
    ledger = Ledger(52, 18, 63, {"not_sampled": 34}, {}, {**sums, **measures})
    files = [File(f"plan/epoch_{number}.npy", 128 + 4 * rows, "") for number, rows in enumerate((30, 33))]
    return Manifest("sample", 5, "0" * 16, {}, [InputRef("rules", "1" * 16)], ledger, files, data=result.to_data())


def test_the_markdown() -> None:
    assert write(Inventory.from_manifest(plan()), "source", "md") == GOLDEN


@pytest.mark.parametrize("what", ["tokens_sampled", "response_tokens_sampled", "unique_tokens"])
def test_a_token_too_many_is_a_defect(what: str) -> None:
    right = plan().ledger.measures[what]
    with pytest.raises(InternalError, match="does not add up") as caught:
        Inventory.from_manifest(plan(**{what: right - 1}))
    assert "a difference of +1" in str(caught.value)


def test_an_epoch_of_another_length_is_a_defect() -> None:
    wrong = plan()
    wrong.files[0] = File("plan/epoch_0.npy", 128 + 4 * 29, "")
    with pytest.raises(InternalError, match="places in the epochs"):
        Inventory.from_manifest(wrong)


@pytest.mark.parametrize("key", ["source", "group", "language", "licence", "task"])
def test_columns_add_up_however_lines_are_made(key: str) -> None:
    inventory = Inventory.from_manifest(plan())
    rows = list(csv.DictReader(io.StringIO(write(inventory, key, "csv"))))
    for column, wanted in (("Tasks", 4), ("Source rows", 52), ("Source tokens", 1140), ("Tokens/epoch", 730)):
        assert sum(float(row[column]) for row in rows) == wanted
    assert sum(float(row["Share"]) for row in rows) == pytest.approx(100, abs=1e-4)
    said = json.loads(write(inventory, key, "json"))
    assert sum(line["tokens_sampled"] for line in said["lines"]) == said["total"]["tokens_sampled"] == 1460
    assert write(inventory, key, "tex").count(r" \\") == len(rows) + 2


def test_a_rule_for_all_tasks_is_a_rule() -> None:
    manifest = plan()
    manifest.data["prefixes"] = dict.fromkeys(STATS, "")
    written = json.loads(write(Inventory.from_manifest(manifest), "group", "json"))
    assert [line["name"] for line in written["lines"]] == ["''"]


def test_the_composition_has_null_for_what_is_not_known() -> None:
    said: dict[str, Any] = composition_of(Inventory.from_manifest(plan()))
    cells = {(cell["language"], cell["group"]): cell for cell in said["cells"]}
    assert set(cells) == {("en", "flan"), (None, "no rule"), (None, "wmt")}
    assert cells["en", "flan"]["next_token_positions"] == 660 - 23
    for what in ("rows", "tokens", "response_tokens", "next_token_positions"):
        assert sum(cell[what] for cell in said["cells"]) == said["total"][what]
    assert said["coverage"] == "the language is known of 660 of 1,460 tokens"
