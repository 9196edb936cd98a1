"""The notebook of the examples in a Jupyter kernel, and what its cells show."""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.support.helpers import REPOSITORY, environment

NOTEBOOK = REPOSITORY / "examples" / "notebook.ipynb"


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Return the code cells, executed by this Python."""
    place = tmp_path_factory.mktemp("kernel")
    spec = {"argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"], "language": "python"}
    (place / "kernels" / "python3").mkdir(parents=True)
    (place / "kernels" / "python3" / "kernel.json").write_text(json.dumps({**spec, "display_name": "this"}))
    variables = {
        **environment(),
        "JUPYTER_PATH": str(place),
        "TMPDIR": str(place),
        "IPYTHONDIR": str(place / "ipython"),
    }
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        notebook = nbformat.read(NOTEBOOK, 4)  # type: ignore[no-untyped-call]
        NotebookClient(
            notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(place)}}
        ).execute()
    finally:
        os.environ.clear()
        os.environ.update(before)
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def shown(cell: Any, kind: str) -> str:
    """Return the last output of a cell, in a form."""
    outputs = [output["data"] for output in cell.outputs if output.output_type == "execute_result"]
    return str(outputs[-1][kind])


def find(cells: list[Any], source: str) -> Any:
    """Return the cell with this in its source."""
    (cell,) = (cell for cell in cells if source in cell.source)
    return cell


def test_it_runs_as_it_is_and_is_kept_without_outputs(cells: list[Any]) -> None:
    assert len(cells) >= 10
    kept = json.loads(NOTEBOOK.read_bytes())
    assert [cell for cell in kept["cells"] if cell.get("outputs") or cell.get("execution_count")] == []
    assert not [output for cell in cells for output in cell.outputs if output.output_type == "error"]


def test_results_are_pages_in_frames(cells: list[Any]) -> None:
    for source in ("CurateConfig", "sampled.stats()", ".manifest"):
        page = shown(find(cells, source), "text/html")
        assert page.startswith('<iframe srcdoc="&lt;!doctype html&gt;'), source
        assert page.count("<") == 2, "nothing of the page is outside of its frame"
    text = shown(find(cells, "CurateConfig"), "text/plain")
    rows = int(re.findall(r"<rows of curate, (\d+) rows: ", text)[0])
    assert 100 < rows < 600


def test_rows_batches_and_progress_are_seen(cells: list[Any]) -> None:
    tokens = find(cells, "tokenized.show")
    assert "⟦<|im_start|>⟧" in shown(tokens, "text/plain")
    assert "⟦&lt;|im_start|&gt;⟧</span>" in shown(tokens, "text/html")
    assert "rank 0: " in shown(find(cells, "sampled.show"), "text/plain")
    assert shown(find(cells, "    batch = next"), "text/plain").startswith("Batch(")
    bars = [
        output["data"]["text/html"]
        for cell in cells
        for output in cell.outputs
        if output.output_type == "display_data" and "text/html" in output["data"]
    ]
    assert bars, "each round has a bar"
    assert set(bars) == {""}, "and the bar goes"
    printed = "".join(output.text for cell in cells for output in cell.outputs if output.output_type == "stream")
    assert '"severity"' not in printed, "no JSON for people"


def test_every_name_is_there_and_in_the_page() -> None:
    import pairmill

    page = (REPOSITORY / "docs" / "python.md").read_text(encoding="utf-8")
    assert len(pairmill.__all__) >= 20
    for name in pairmill.__all__:
        assert getattr(pairmill, name).__name__ == name
        assert f"`{name}" in page or f"pairmill.{name}" in page, name
    with pytest.raises(AttributeError, match="has no attribute 'opne'"):
        pairmill.opne  # noqa: B018


def test_import_brings_nothing_along() -> None:
    from tests.support.helpers import python

    code = "import sys, pairmill; print([name for name in sys.modules if name.startswith(('pairmill.', 'numpy'))])"
    assert python("-c", code).stdout == "[]\n"
    arrays = "import sys, pairmill; pairmill.open; pairmill.Loader; print({'pyarrow', 'tokenizers'} & set(sys.modules))"
    assert python("-c", arrays).stdout == "set()\n"


def test_what_is_no_stage_is_refused(tmp_path: Path) -> None:
    import pairmill

    with pytest.raises(
        pairmill.UsageError, match=r"nothing to run; got Path.*; expected options of a stage|got PosixPath"
    ):
        pairmill.run(tmp_path)
