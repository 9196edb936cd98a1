from __future__ import annotations

from pathlib import Path

import numpy as np

from pairmill.engine import manifest as manifests
from pairmill.formats.tokens import ARRAYS
from pairmill.rules.book import Rules
from tests.support.data import dfm


def test_a_folder_has_the_tasks_rows_and_digests_that_it_says(tmp_path: Path) -> None:
    total = dfm.write(tmp_path / "made", 60, 5_000, tokens=True)

    manifest = manifests.read(str(tmp_path / "made"))
    assert manifest is not None
    assert manifests.find_damage(str(tmp_path / "made"), manifest.files, verify=True) == []
    arrays = {name: [np.load(tmp_path / "made" / task / f"{name}.npy") for task in manifest.tasks()] for name in ARRAYS}
    assert len(manifest.tasks()) == 60
    assert sum(map(len, arrays["inst_len"])) == manifest.ledger.rows_in == 5_000
    assert (
        sum(map(len, arrays["tokens"]))
        == total
        == sum(int(array.sum()) for array in arrays["inst_len"]) + sum(int(array.sum()) for array in arrays["resp_len"])
    )


def test_sparse_and_real_folders_have_the_same_index(tmp_path: Path) -> None:
    for name in ("sparse", "real"):
        dfm.write(tmp_path / name, 25, 500, tokens=name == "real", manifest=False, even=True)

    paths = [path.relative_to(tmp_path / "real") for path in (tmp_path / "real").rglob("*.npy")]
    assert len(paths) == 25 * 5
    for path in paths:
        real, sparse = (tmp_path / name / path for name in ("real", "sparse"))
        assert real.stat().st_size == sparse.stat().st_size
        assert path.name == "tokens.npy" or real.read_bytes() == sparse.read_bytes()


def test_every_rule_has_a_task(tmp_path: Path) -> None:
    tasks = [name for name, _ in dfm.names(dfm.DFM9)]
    assert len(set(tasks)) == dfm.DFM9
    for some, rules in ((tasks, dfm.old_rules()), ([name for name, _ in dfm.names(300)], dfm.rule_for_each(300))):
        dfm.write_rules(tmp_path / "rules.yaml", rules)
        read = Rules.load(str(tmp_path / "rules.yaml"), "pairmill", "prefix_config_path")
        assert {read.label_of(task) for task in some} == {rule["prefix"] for rule in rules}
