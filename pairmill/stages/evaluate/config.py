"""Options of the evaluate stage."""

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from pairmill.engine.options import RunConfig, option
from pairmill.evaluation.settings import LENIENT, STRICT, EvaluateSettings, parse_places
from pairmill.formats import settings_file
from pairmill.formats.sample_folder import PLACE


@dataclass(kw_only=True)
class EvaluateConfig(RunConfig, any_of=("benchmarks", "held_out")):
    """Ask a trained model the questions of benchmarks, and measure its loss on held-out rows."""

    model: str = option(
        help="a finished run of train, a folder that its export wrote, or the URL of a server of OpenAI's protocol",
        changes_bytes=False,  # models and data are inputs, by content
        takes="net",
    )
    tokenizer: str = option(
        "",
        help="tokenizer.json of the data, for a run of train that was trained without; of a server, the one that it "
        "has to have; empty = that of the model",
        changes_bytes=False,  # the model's digest has it
    )
    benchmarks: list[str] = option(
        [], help="names of benchmarks, or lm_eval/<task>, joined by commas; empty = held-out loss alone"
    )
    scorings: list[str] = option(
        [],
        help="which readings of an answer count, of strict and lenient: the first that a benchmark has is its figure, "
        "the others are beside it; empty = what docs/evaluation.md says of each benchmark",
        choices=(STRICT, LENIENT),
    )
    data: list[str] = option(
        [],
        help="where data of benchmarks are, as gsm8k=<a file, a folder, or owner/name@revision of the Hub>; others are "
        "read from the Hub",
        changes_bytes=False,
    )
    held_out: str = option(
        "",
        help="a held-out sampled folder, or its plan, for the loss of a run of train; empty = none",
        changes_bytes=False,
    )
    samples_path: str = option(
        PLACE,
        help="local folder beside which the arrays of a plan of held-out rows are made, as of train",
        changes_bytes=False,
    )
    training: list[str] = option(
        [],
        help="rows that the model was trained on, joined by commas: questions that are among them are scored apart",
        changes_bytes=False,
    )
    evaluate_config: str = option(
        settings_file.DEFAULT,
        help="generation, prompts and profile, as a YAML file; default = what is built in, as in "
        "configs/evaluate_config.yaml",
        changes_bytes=False,
    )
    set: list[str] = option(
        [], help="settings in place of the file's, as generation.max_tokens=64,limit=100", changes_bytes=False
    )
    run_only: list[str] = option(
        [], help="of benchmarks, only these; empty = all", changes_bytes=False, choices="benchmarks"
    )
    workers: int = option(
        1,
        help="processes on this machine, each of which loads the model; 0 = one per available core",
        changes_bytes=False,
        at_least=0,
    )

    @property
    def asked(self) -> list[str]:
        """The benchmarks to ask."""
        return [name for name in self.benchmarks if not self.run_only or name in self.run_only]

    @property
    def places(self) -> dict[str, str]:
        """Return where the data of benchmarks are, by name of the benchmark."""
        return parse_places(self.data)

    @cached_property
    def settings(self) -> EvaluateSettings:
        """What the file and ``set`` say; read once."""
        return EvaluateSettings.load(self.evaluate_config, self.set)


@dataclass(kw_only=True)
class WatchConfig(EvaluateConfig):
    """Ask the checkpoints of a run of train as they appear, and print a table of their figures."""

    model: str = option(
        "", help="of a watched run its checkpoints are what is asked: leave it out", changes_bytes=False
    )
    run: str = option(help="the run: the root of its training, or its folder of checkpoints", changes_bytes=False)
    every: int = option(
        help="steps: of as many, the first complete checkpoint is asked, and the last one of the run",
        changes_bytes=False,
        at_least=1,
    )
    wait: bool = option(
        True,
        help="false = end with the checkpoints that there are, in place of with the last step of the run",
        changes_bytes=False,
    )
    idle_hours: float = option(
        0.0,
        help="hours to wait for a run that has not begun, and for each next checkpoint: then it ends with those that "
        "there are; 0 = the run has begun, and is waited for however long it takes",
        changes_bytes=False,
        at_least=0,
    )
    serve: str = option(
        "",
        help="command that serves an exported checkpoint by OpenAI's protocol, with {model} for its folder and {port}; "
        "empty = train's own generation answers",
        changes_bytes=False,
        form=(r".*\{port\}.*", "a command with {port} and {model} in it"),
    )

    def asked_of(self, model: str, **more: Any) -> EvaluateConfig:
        """Return the options that ask one model."""
        own = {item.name: getattr(self, item.name) for item in fields(EvaluateConfig)}
        return EvaluateConfig(**{**own, "model": model, **more})
