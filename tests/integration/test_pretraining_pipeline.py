"""The Pretraining Pipeline's own run: the commands of docs/pretraining_pipeline.md, up to a loader's batches."""

import json
import os
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pairmill.loader import Loader, RowPlan
from pairmill.mixture.reading import load_mixture
from tests.support import tools
from tests.support.helpers import PATIENCE, REPOSITORY
from tests.support.nets.models import KENLM, use_kenlm
from tests.support.processes.typed_program import TypedProgram

PAGE = REPOSITORY / "docs" / "pretraining_pipeline.md"
SOURCES = {"c4", "bookcorpus", "the_stack", "cc_news", "arxiv"}
ENGLISH = {"web", "books", "news", "academic"}
CODE = {"c++", "python", "rust"}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project folder that the page's commands make."""
    use_kenlm()
    folder = tmp_path_factory.mktemp("pretraining")
    (folder / "examples").symlink_to(REPOSITORY / "examples")
    (commands,) = re.findall(r"<!-- commands -->\n```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    programs = [str(folder / "programs"), str(Path(sys.executable).parent), os.environ["PATH"]]
    paths = {"PYTHONPATH": f"{REPOSITORY}{os.pathsep}{KENLM}", "PATH": os.pathsep.join(programs)}
    with closing(TypedProgram(folder / "programs")):
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=folder,
            env={**os.environ, **paths},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    page = r"the line: .*/build/pretraining/line/[0-9a-f]{16}\.html\n"
    assert re.search(page + r"  again: pairmill run .*\.yaml\n$", done.stdout)
    return folder / "build" / "pretraining"


def manifest(project: Path, stage: str) -> dict[str, Any]:
    folders = [path.parent for path in (project / stage).glob(f"*/{tools.MANIFEST}")]
    made = [{"folder": folder, **tools.read_manifest(folder)} for folder in folders]
    # Of sample there is a second one.
    (found,) = (one for one in made if not any(ref["role"] == "held_out" for ref in one["inputs"]))
    return found


def nothing_is_switched_off_and_each_rule_finds_what_it_is_for(project: Path) -> None:
    made = manifest(project, "curate")
    said = made["data"]["settings"]
    modes = {name: said[name]["mode"] for name in ("exact", "near", "decontaminate", "heuristics", "perplexity")}
    assert set(modes.values()) == {"drop"}
    assert said["heuristics"]["profile"] == "seed_web"
    assert [(one["name"], one["mode"]) for one in said["classifiers"]] == [("quality", "drop")]
    assert set(made["data"]["sources"]) == SOURCES
    # Pages of menus and prices are in c4 alone; short pieces of news too.
    dropped = {name: one["dropped"] for name, one in made["data"]["sources"].items()}
    assert dropped["c4"]["heuristic:j_url_ratio_max"] > 20
    assert dropped["cc_news"]["heuristic:j_words_min"] > 20
    assert not [name for name in SOURCES - {"c4"} if "heuristic:j_url_ratio_max" in dropped[name]]
    # All rows have a perplexity and a probability; those of code are greater than any bound for prose.
    means = made["data"]["means"]
    assert set(means["perplexity.r_perplexity"]) == set(means["quality.r_quality_good"]) == SOURCES
    perplexity = {name: one[3] / one[2] for name, one in means["perplexity.r_perplexity"].items()}
    assert max(value for name, value in perplexity.items() if name != "the_stack") < 5000 < perplexity["the_stack"]


def hybrid_selection_keeps_the_share_of_each_domain_and_prefers_quality(project: Path) -> None:
    made = manifest(project, "select")
    assert made["data"]["method"] == "hybrid"
    rows = sum(one["rows"] for one in made["data"]["sources"].values())
    # Held-out rows are beside them, and are not chosen from.
    assert 0 < made["ledger"]["rows_in"] - rows < 0.1 * rows
    assert sum(one["chosen"] for one in made["data"]["sources"].values()) == int(rows * 0.7)
    for name, one in made["data"]["sources"].items():
        assert abs(one["chosen"] - 0.7 * one["rows"]) <= 1, name
    quality = made["data"]["means"]["quality.r_quality_good"]
    for name in ("c4", "cc_news", "arxiv"):
        rows, whole, kept, good = quality[name]
        assert good / kept > whole / rows + 0.01, name


def the_shares_that_are_drawn_are_those_that_were_planned(project: Path) -> None:
    plan = load_mixture(str(manifest(project, "mix")["folder"]))
    assert set(plan.source_of.values()) == ENGLISH | CODE
    english, code = plan.by_phase["english"], plan.by_phase["code"]
    drawn = {one.name: one for one in english}
    counts = {name: sum(task.response_tokens for task in one.tasks) for name, one in drawn.items()}
    assert not any(drawn[name].tokens for name in CODE)
    # UniMax with one epoch: what is small is taken whole, the rest share evenly.
    level = max(one.tokens for one in english)
    for name in ENGLISH:
        assert drawn[name].tokens == pytest.approx(min(level, counts[name]))
    assert drawn["books"].epochs == pytest.approx(1)
    assert drawn["web"].epochs < 1
    # Shares of code are its sizes to the power of 1.3.
    sizes = {one.name: sum(task.response_tokens for task in one.tasks) ** 1.3 for one in code if one.name in CODE}
    for one in code:
        assert one.share == pytest.approx(sizes[one.name] / sum(sizes.values()) if one.name in CODE else 0)

    sampled = manifest(project, "sample")
    shares = sampled["data"]["mixture"]["shares"]
    assert len(shares["within"]) > 7
    assert all(shares["within"])
    phases = {
        phase: sum(
            shares["tokens"][at]
            for at, (name, epoch) in enumerate(zip(shares["phase"], shares["epoch"], strict=True))
            if name == phase and epoch is None
        )
        for phase in ("english", "code")
    }
    assert phases["english"] / sum(phases.values()) == pytest.approx(0.7, abs=0.01)
    assert sampled["ledger"]["measures"]["response_tokens_sampled"] == sum(phases.values())


def a_loader_reads_the_sample(project: Path) -> None:
    folder = project / "sampled"
    metadata = json.loads((folder / "metadata.json").read_text())
    with Loader(RowPlan(folder, tail="keep"), batch_tokens=2052, threads=0) as loader:
        seen = rows = 0
        for batch in loader:
            rows += batch.scalars["numseqs"]
            seen += int((batch["labels"] != -100).sum())
    measures = tools.read_manifest(folder)["ledger"]["measures"]
    assert measures["epochs"] == 5
    assert rows == tools.read_manifest(folder)["ledger"]["rows_out"]
    assert seen == measures["response_tokens_sampled"]
    assert metadata["max_seq_len"] == 513


def the_page_over_the_line_has_every_stage_and_domain(project: Path) -> None:
    (page,) = (project / "line").glob("[!i]*.html")
    text = page.read_text(encoding="utf-8")
    for word in ("cleaned", "curated", "selected", "tokenized", "planned", "sampled", "not selected hybrid"):
        assert word in text
    for name in SOURCES | ENGLISH | CODE:
        assert name in text


def test_the_commands_of_the_page(project: Path) -> None:
    """One test: of several, each worker that got one would run the commands."""
    nothing_is_switched_off_and_each_rule_finds_what_it_is_for(project)
    hybrid_selection_keeps_the_share_of_each_domain_and_prefers_quality(project)
    the_shares_that_are_drawn_are_those_that_were_planned(project)
    a_loader_reads_the_sample(project)
    the_page_over_the_line_has_every_stage_and_domain(project)
