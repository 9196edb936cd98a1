"""``evaluate_config.yaml``: how texts are generated, what is asked, and how answers are scored. No torch here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final, Literal, Self

from pairmill.errors import UsageError
from pairmill.formats.settings_file import SettingsFile, render, to_json

DEFAULT: Final = "evaluate_config.yaml"
"""The default file, in the working directory. It is optional: without it every setting has its default."""

HEAD: Final = """How a model is evaluated. Every setting has its default here.
An override of the command line counts more than this file: set=generation.max_tokens=64
Made by: python -m components.evaluate settings"""

ProfileName = Literal["pairmill", "hrm_text"]


def _least(settings: Any, least: float, *names: str) -> None:
    for name in names:
        value = getattr(settings, name)
        if value is not None and not value >= least:
            raise UsageError("out of range", where=name, got=str(value), expected=f"{least:g} or more")


@dataclass(frozen=True, kw_only=True)
class Generation:
    """How texts are generated.

    Args:
        temperature: 0 = always the likeliest token.
        seed: of the draws, if the temperature is above 0.
        samples: texts of a question.
        max_tokens: most tokens of a text.
        max_context: most tokens of prompt and text; a model that has fewer positions takes those.
        condition: tags before a prompt, joined by commas, for models that were trained with tags.
        stop: texts before the first of which a text ends; a server is sent four of them at most.
    """

    temperature: float = 0.0
    seed: int = 0
    samples: int = 1
    max_tokens: int = 1024
    max_context: int = 3072
    condition: str = ""
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _least(self, 0, "temperature", "seed")
        _least(self, 1, "samples", "max_tokens", "max_context")
        if "" in self.stop:
            raise UsageError("an empty text ends every text", where="stop", expected="texts of a character or more")

    @property
    def tags(self) -> list[str]:
        """The tags of the condition, in order."""
        return [tag.strip() for tag in self.condition.split(",") if tag.strip()]

    def over(self, values: Mapping[str, Any]) -> Self:
        """The same with other values; None leaves one as it is."""
        known = {one.name for one in fields(self)}
        return replace(self, **{name: value for name, value in values.items() if name in known and value is not None})

    def said(self) -> dict[str, Any]:
        """JSON-like: all that texts follow from; the condition is a part of each prompt."""
        found = asdict(self)
        del found["condition"]
        if not self.temperature:
            del found["seed"]
        if not self.stop:
            del found["stop"]
        return found


@dataclass(frozen=True, kw_only=True)
class GenerationOverrides:
    """Values that differ for one benchmark; null = what the benchmark says.

    Args:
        temperature: see above.
        seed: see above.
        samples: see above.
        max_tokens: see above.
        max_context: see above.
        condition: see above.
        stop: see above.
    """

    temperature: float | None = None
    seed: int | None = None
    samples: int | None = None
    max_tokens: int | None = None
    max_context: int | None = None
    condition: str | None = None
    stop: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        Generation().over(asdict(self))


@dataclass(frozen=True, kw_only=True)
class Server:
    """A server that speaks OpenAI's protocol.

    Args:
        model: name of the model there; empty = the only one that the server has.
        revision: of that model, in your words; another one is another model, whose texts are not used again.
        at_once: questions that are asked at the same time.
        key_variable: environment variable with the key; nothing is sent if it is not set.
        seconds: to wait for an answer.
    """

    model: str = ""
    revision: str = ""
    at_once: int = 16
    key_variable: str = "OPENAI_API_KEY"
    seconds: float = 600.0

    def __post_init__(self) -> None:
        _least(self, 1, "at_once", "seconds")


@dataclass(frozen=True, kw_only=True)
class Net:
    """A model that runs here.

    Args:
        weights: of a run: ema, current, or auto, which takes those with the lower held-out loss.
        batch: prompts that are continued together; the texts do not follow from it.
        device: auto = a GPU if there is one.
        precision: of weights and activations.
        special_tokens: what a special token is that a prompt spells out: text, as in training, or the token.
        unknown_tags: what to do with tags of a condition that the model was not trained with.
    """

    weights: Literal["auto", "ema", "current"] = "auto"
    batch: int = 33
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["float32", "bfloat16"] = "float32"
    special_tokens: Literal["text", "tokens"] = "text"
    unknown_tags: Literal["refuse", "leave_out"] = "refuse"

    def __post_init__(self) -> None:
        _least(self, 1, "batch")


@dataclass(frozen=True, kw_only=True)
class HeldOutSettings:
    """Held-out loss of a run of train.

    Args:
        rows: at most so many, always the same ones; 0 = all.
        slots: tokens that are computed together; the loss does not follow from it.
    """

    rows: int = 0
    slots: int = 8192

    def __post_init__(self) -> None:
        _least(self, 0, "rows")
        _least(self, 1, "slots")


@dataclass(frozen=True, kw_only=True)
class Harness:
    """Tasks of lm-evaluation-harness, which are named as lm_eval/arc_easy.

    Args:
        tasks: a folder of this machine with task files of your own, and their data.
        shots: questions with answers before each question; null = what the task says.
    """

    tasks: str = ""
    shots: int | None = None

    def __post_init__(self) -> None:
        _least(self, 0, "shots")


@dataclass(frozen=True, kw_only=True)
class EvaluateSettings:
    """All settings.

    Args:
        profile: pairmill, or hrm_text: the figure of the table is the reference's, defects included.
        prompt_template: a text with {prompt}, around every prompt; empty = the prompt alone.
        limit: at most so many questions of a benchmark, the first ones; 0 = all.
        generation: what holds unless a benchmark says otherwise.
        benchmarks: by name, what differs from both, as gsm8k: {max_tokens: 64}.
        net: a model that runs here.
        server: a model that a server runs.
        held_out: loss on held-out rows.
        harness: tasks of lm-evaluation-harness.
        drop_shots: a file with examples for DROP, as text, which go before each of its questions; empty = none.
    """

    profile: ProfileName = "pairmill"
    prompt_template: str = ""
    limit: int = 0
    generation: Generation = field(default_factory=Generation)
    benchmarks: dict[str, GenerationOverrides] = field(default_factory=dict)
    net: Net = field(default_factory=Net)
    server: Server = field(default_factory=Server)
    held_out: HeldOutSettings = field(default_factory=HeldOutSettings)
    harness: Harness = field(default_factory=Harness)
    drop_shots: str = ""

    def __post_init__(self) -> None:
        _least(self, 0, "limit")
        if self.prompt_template and "{prompt}" not in self.prompt_template:
            raise UsageError("lacks {prompt}", where="prompt_template", got=repr(self.prompt_template)[:80])

    @classmethod
    def load(cls, given: str, overrides: Sequence[str] = (), by: str = "set") -> Self:
        """Read the file at a path or URI. Raises UsageError with the line of the first mistake.

        Args:
            given: the file.
            overrides: settings in its place.
            by: the option that these came by, for messages.
        """
        file = SettingsFile.load(given, "evaluate_config", DEFAULT)
        file.override(overrides, by)
        return file.onto(cls())

    def generation_of(self, name: str, own: Mapping[str, Any]) -> Generation:
        """How texts of a benchmark are generated: the base, then what the benchmark says, then what is said for it."""
        return self.generation.over(own).over(asdict(self.benchmarks.get(name, GenerationOverrides())))

    def prompt(self, text: str) -> str:
        """A prompt in the template."""
        return self.prompt_template.replace("{prompt}", text) if self.prompt_template else text

    @property
    def before_prompt(self) -> str:
        """The last line of the template before the prompt, as a text that goes on with another question has it."""
        lines = self.prompt_template.partition("{prompt}")[0].strip().splitlines()
        return f"\n{lines[-1].strip()}" if lines else ""

    def said(self) -> dict[str, Any]:
        """JSON-like: what a result follows from."""
        found: dict[str, Any] = to_json(self)
        del found["held_out"]["slots"]
        del found["harness"]["tasks"], found["drop_shots"]  # by content among the inputs
        for section, names in (("net", ("batch", "device")), ("server", ("at_once", "key_variable", "seconds"))):
            for name in names:
                del found[section][name]
        return found


def default_file() -> str:
    """The text of evaluate_config.yaml as it is shipped."""
    return render(EvaluateSettings(), HEAD)
