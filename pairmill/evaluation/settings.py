"""``configs/evaluate_config.yaml``: how texts are generated and answers scored; no torch here."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar, Literal, Self

from pairmill.errors import UsageError
from pairmill.fields import Checked, setting
from pairmill.formats.settings_file import FileSettings

ProfileName = Literal["pairmill", "hrm_text"]
STRICT, LENIENT = "strict", "lenient"
"""Names of verdicts: the answer alone counts; a right answer in a sentence counts too."""


_STOP = (".+", "texts of a character or more, as an empty one ends every text")


@dataclass(frozen=True, kw_only=True)
class Generation(Checked):
    """How texts are generated."""

    temperature: float = setting(0.0, help="0 = always the likeliest token", at_least=0)
    seed: int = setting(0, help="of the draws, if the temperature is above 0", at_least=0)
    samples: int = setting(1, help="texts of a question", at_least=1)
    max_tokens: int = setting(1024, help="most tokens of a text", at_least=1)
    max_context: int = setting(
        3072, help="most tokens of prompt and text; a model that has fewer positions takes those", at_least=1
    )
    condition: str = setting("", help="tags before a prompt, joined by commas, for models that were trained with tags")
    stop: tuple[str, ...] = setting(
        (), help="texts before the first of which a text ends; a server is sent four of them at most", form=_STOP
    )

    @property
    def tags(self) -> list[str]:
        """Return the tags of the condition, in order."""
        return [tag.strip() for tag in self.condition.split(",") if tag.strip()]

    def identify(self) -> object:
        """Return what a shard that generates texts is keyed by."""
        return self.to_manifest()

    def over(self, values: Mapping[str, Any]) -> Self:
        """Return the same with other values; None leaves a value as it is."""
        known = {item.name for item in fields(self)}
        return replace(self, **{name: value for name, value in values.items() if name in known and value is not None})

    def to_manifest(self) -> dict[str, Any]:
        """Return JSON-like values: all that texts follow from; the condition is a part of each prompt."""
        values = asdict(self)
        del values["condition"]
        if not self.temperature:
            del values["seed"]
        if not self.stop:
            del values["stop"]
        return values


@dataclass(frozen=True, kw_only=True)
class GenerationOverrides(Checked):
    """Values that differ for one benchmark; null = what the benchmark says."""

    temperature: float | None = setting(None, help="see above", at_least=0)
    seed: int | None = setting(None, help="see above", at_least=0)
    samples: int | None = setting(None, help="see above", at_least=1)
    max_tokens: int | None = setting(None, help="see above", at_least=1)
    max_context: int | None = setting(None, help="see above", at_least=1)
    condition: str | None = setting(None, help="see above")
    stop: tuple[str, ...] | None = setting(None, help="see above", form=_STOP)


@dataclass(frozen=True, kw_only=True)
class Server(Checked):
    """A server that speaks OpenAI's protocol."""

    model: str = setting("", help="name of the model there; empty = the only one that the server has")
    revision: str = setting(
        "", help="of that model, in your words; another one is another model, whose texts are not used again"
    )
    at_once: int = setting(16, help="questions that are asked at the same time", at_least=1)
    key_variable: str = setting(
        "OPENAI_API_KEY", help="environment variable with the key; nothing is sent if it is not set"
    )
    seconds: float = setting(600.0, help="to wait for an answer", at_least=1)
    mode: Literal["completions", "chat"] = setting(
        "completions", help="what is asked: /completions with the prompt, or /chat/completions with it as a message"
    )


@dataclass(frozen=True, kw_only=True)
class Net(Checked):
    """A model that runs here."""

    weights: Literal["auto", "ema", "current"] = setting(
        "auto", help="of a run: ema, current, or auto, which takes those with the lower held-out loss"
    )
    batch: int = setting(33, help="prompts that are continued together; the texts do not follow from it", at_least=1)
    device: Literal["auto", "cpu", "cuda"] = setting("auto", help="auto = a GPU if there is one")
    precision: Literal["float32", "bfloat16"] = setting("float32", help="of weights and activations")
    special_tokens: Literal["text", "tokens"] = setting(
        "text", help="what a special token is that a prompt spells out: text, as in training, or the token"
    )
    unknown_tags: Literal["refuse", "leave_out"] = setting(
        "refuse", help="what to do with tags of a condition that the model was not trained with"
    )


@dataclass(frozen=True, kw_only=True)
class HeldOutSettings(Checked):
    """Held-out loss of a run of train."""

    rows: int = setting(0, help="how many at most, always the same ones; 0 = all", at_least=0)
    slots: int = setting(8192, help="tokens that are computed together; the loss does not follow from it", at_least=1)


@dataclass(frozen=True, kw_only=True)
class Harness(Checked):
    """Tasks of lm-evaluation-harness, which are named as lm_eval/arc_easy."""

    tasks: str = setting("", help="a folder of this machine with task files of your own, and their data")
    shots: int | None = setting(
        None, help="questions with answers before each question; null = what the task says", at_least=0
    )


@dataclass(frozen=True, kw_only=True)
class EvaluateSettings(FileSettings):
    """All settings."""

    OPTION: ClassVar = "evaluate_config"
    HEAD: ClassVar = """\
How a model is evaluated. Every setting has its default here.
An override of the command line counts more than this file: set=generation.max_tokens=64
Made by: pairmill evaluate settings"""

    profile: ProfileName = setting(
        "pairmill", help="pairmill, or hrm_text: the figure of the table is the reference's, defects included"
    )
    prompt_template: str = setting(
        "",
        help="a text with {prompt}, around every prompt; empty = the prompt alone",
        form=(r".*\{prompt\}.*", "a text with {prompt}"),
    )
    limit: int = setting(0, help="how many questions of a benchmark at most, the first ones; 0 = all", at_least=0)
    generation: Generation = setting(Generation, help="what holds unless a benchmark says otherwise")
    benchmarks: dict[str, GenerationOverrides] = setting(
        {}, help="by name, what differs from both, as gsm8k: {max_tokens: 64}"
    )
    net: Net = setting(Net, help="a model that runs here")
    server: Server = setting(Server, help="a model that a server runs")
    held_out: HeldOutSettings = setting(HeldOutSettings, help="loss on held-out rows")
    harness: Harness = setting(Harness, help="tasks of lm-evaluation-harness")
    drop_shots: str = setting(
        "", help="a file with examples for DROP, as text, which go before each of its questions; empty = none"
    )

    def generation_of(self, name: str, own: Mapping[str, Any]) -> Generation:
        """Return how texts of a benchmark are generated: as by default, then its own values, then the file's for it."""
        return self.generation.over(own).over(asdict(self.benchmarks.get(name, GenerationOverrides())))

    def prompt(self, text: str) -> str:
        """Put a prompt into the template."""
        return self.prompt_template.replace("{prompt}", text) if self.prompt_template else text

    @property
    def before_prompt(self) -> str:
        """Return the template's last line before the prompt, as a text that goes on with another question has it."""
        lines = self.prompt_template.partition("{prompt}")[0].strip().splitlines()
        return f"\n{lines[-1].strip()}" if lines else ""

    def to_manifest(self) -> dict[str, Any]:
        """Return JSON-like values: what a result follows from."""
        values = super().to_manifest()
        del values["held_out"]["slots"]
        del values["harness"]["tasks"], values["drop_shots"]  # by content among the inputs
        for section, names in (("net", ("batch", "device")), ("server", ("at_once", "key_variable", "seconds"))):
            for name in names:
                del values[section][name]
        return values


def parse_places(data: Sequence[str]) -> dict[str, str]:
    """Return the places of the option ``data`` by name of the benchmark.

    Raises:
        UsageError: an item is not <benchmark>=<place>, or a benchmark occurs twice.
    """
    places: dict[str, str] = {}
    for item in data:
        match = re.fullmatch(r"([\w-]+)=(.+)", item)
        if match is None:
            raise UsageError("lacks a name", where="data", got=item, expected="<benchmark>=<place>")
        if match[1] in places:
            raise UsageError("a benchmark occurs twice", where="data", got=match[1])
        places[match[1]] = match[2]
    return places
