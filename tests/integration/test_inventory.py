"""The inventory of a plan that was drawn: its columns are the sums of the plan's arrays."""

import csv
import io
from pathlib import Path

import numpy as np

from pairmill.engine import manifest as manifests
from pairmill.engine.source_names import source_of
from pairmill.formats.results.sample import SampleResult
from tests.support import tools
from tests.support.data import dfm

TASKS, ROWS, EPOCHS = 60, 2_400, 3


def test_columns_are_the_sums_of_the_arrays(tmp_path: Path) -> None:
    tokenized, root = tmp_path / "tokenized", tmp_path / "root"
    dfm.write(tokenized, TASKS, ROWS, tokens=True)
    rules = tmp_path / "rules.yaml"
    dfm.write_rules(rules, dfm.old_rules())
    given = {"prefix_config_path": rules, "epochs": EPOCHS, "output_path": "", "context_size": 512}
    done = tools.stage("sample", tokenized_path=tokenized, root=root, **given)
    assert done.code == 0, done.err
    (plan,) = (path.parent for path in root.glob("sample/*/_MANIFEST.json"))
    assert "Task Coverage" not in done.out
    assert str(plan / "tasks.csv") in done.out

    manifest = manifests.read(str(plan))
    assert manifest is not None
    tasks = [(item["name"], item["rows"]) for item in SampleResult.from_manifest(manifest).sources]
    task_of = np.repeat(np.arange(len(tasks)), [rows for _, rows in tasks])
    length = sum(np.load(plan / "plan" / f"{name}.npy").astype(np.int64) for name in ("inst_len", "resp_len"))
    drawn = np.concatenate([np.load(plan / "plan" / f"epoch_{number}.npy") for number in range(EPOCHS)])
    rows = np.bincount(task_of[drawn], minlength=len(tasks))
    tokens = np.bincount(task_of[drawn], weights=length[drawn], minlength=len(tasks))
    wanted = {name: [rows[at] / EPOCHS, tokens[at] / EPOCHS] for at, (name, _) in enumerate(tasks)}

    lines = {line["Task"]: line for line in csv.DictReader(io.StringIO((plan / "tasks.csv").read_text()))}
    assert lines.keys() == wanted.keys()
    for name, (mean_rows, mean_tokens) in wanted.items():
        assert abs(float(lines[name]["Rows/epoch"]) - mean_rows) < 0.006
        assert abs(float(lines[name]["Tokens/epoch"]) - mean_tokens) < 0.006

    done = tools.run([*tools.command("sample")[:4], "inventory", f"plan={plan}", "format=csv"])
    by_source: dict[str, float] = {}
    for name, (_, mean_tokens) in wanted.items():
        by_source[source_of(name)] = by_source.get(source_of(name), 0) + mean_tokens
    printed = {line["Source"]: float(line["Tokens/epoch"]) for line in csv.DictReader(io.StringIO(done.out))}
    assert printed.keys() == by_source.keys()
    assert all(abs(printed[name] - tokens) < 0.006 for name, tokens in by_source.items())
    assert "Inventory by source" in (plan / "report.md").read_text()
