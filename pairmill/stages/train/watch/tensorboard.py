"""TensorBoard files of a run."""

import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from pairmill.errors import UsageError
from pairmill.stages.train.watch.records import Line, numbers_of, read, tag_of

FILE: Final = "events.out.tfevents.train"
"""The one file of a finished run; TensorBoard finds it by the word tfevents."""


def require() -> None:
    """Raise UsageError unless TensorBoard's writer is installed."""
    if any(find_spec(name) is None for name in ("torch", "tensorboard")):
        raise UsageError(
            "TensorBoard is not installed",
            where="watch.tensorboard",
            hint="install the package tensorboard, or set watch.tensorboard to false",
        )


class TensorBoard:
    """Writes lines of metrics.jsonl as scalars and texts.

    Args:
        step: what other files of the folder have after this step is forgotten by TensorBoard.
    """

    def __init__(self, folder: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(folder), purge_step=step + 1, max_queue=1000, flush_secs=10)

    def write(self, line: Line) -> None:
        """Write the numbers, or the texts, of a line."""
        step, at = line["step"], line.get("time")
        if line["kind"] == "sample":
            for number, sample in enumerate(line["samples"], 1):
                self._writer.add_text(f"samples/{number}", _text(sample), step, at)
        elif line["kind"] == "event":
            says = {name: value for name, value in line.items() if name not in {"step", "kind", "time"}}
            self._writer.add_text("events", ", ".join(f"{name} {value}" for name, value in says.items()), step, at)
        else:
            for name, value in numbers_of(line).items():
                self._writer.add_scalar(tag_of(name), value, step, at)

    def flush(self) -> None:
        """Wait until everything is in the file."""
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def of_metrics(metrics: Path) -> bytes:
    """Make the file of a finished run: each line of its metrics.jsonl once, whatever was stopped and begun again."""
    with tempfile.TemporaryDirectory() as scratch:
        board = TensorBoard(Path(scratch), 0)
        for line in read(metrics):
            board.write(line)
        board.close()
        (made,) = Path(scratch).iterdir()
        return made.read_bytes()


def _text(sample: Mapping[str, str]) -> str:
    """Indented, so that Markdown shows the texts as they are."""
    condition = f" ({sample['condition']})" if sample["condition"] else ""
    parts = ((f"prompt{condition}", sample["prompt"]), ("text", sample["text"]))
    return "\n\n".join(f"{name}:\n\n" + "\n".join(f"    {item}" for item in text.split("\n")) for name, text in parts)
