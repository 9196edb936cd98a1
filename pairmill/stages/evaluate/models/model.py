"""What a model is for the stage: a digest, and texts for prompts."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pairmill.engine.manifest import content_key
from pairmill.errors import UsageError
from pairmill.evaluation.settings import Generation


@dataclass(frozen=True)
class Prompt:
    """A prompt: its digest, its text, its tags in the order of their tokens, and texts that end an answer.

    Of a chat also its messages, and the tools that it offers.
    """

    digest: str
    prompt: str
    tags: tuple[str, ...] = ()
    until: tuple[str, ...] = ()
    messages: tuple[Mapping[str, Any], ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Text:
    """What a model wrote.

    Attributes:
        text: without the token that ends it.
        tokens: how many, that token included; -1 = not known.
        stopped: whether the model ended it.
        too_long: the prompt left no room for a token, so nothing was written.
    """

    text: str
    tokens: int
    stopped: bool
    too_long: bool = False


@dataclass(frozen=True)
class Likelihood:
    """How likely an ending is.

    Attributes:
        log: natural logarithm of its probability; None: there was no room for it.
        greedy: whether each of its tokens is the likeliest one.
    """

    log: float | None
    greedy: bool


@dataclass(frozen=True)
class Model(ABC):
    """A model, not loaded yet: picklable.

    Attributes:
        digest: of all that its texts follow from beside prompts and generation settings. Equal digests: equal texts,
            up to rounding on another device.
        where: what the user gave, for messages.
    """

    digest: str
    where: str

    kind: ClassVar[str]

    def identify(self) -> object:
        """Return what a shard that asks the model is keyed by."""
        return self.digest

    @classmethod
    def digest_of(cls, *parts: object) -> str:
        """Return the digest of a model of this kind: of JSON-like values."""
        return content_key(f"evaluate {cls.kind.split()[0]}", *parts)

    @abstractmethod
    def answers(self, asked: Sequence[Prompt], generation: Generation) -> list[list[Text]]:
        """``generation.samples`` texts of each prompt, in the order of the prompts.

        It loads the model on its first call in a process, and keeps it.
        """

    def likelihoods(self, asked: Sequence[Prompt], endings: Sequence[str]) -> list[Likelihood]:
        """Return how likely each prompt is answered by a text that begins with its ending.

        Raises:
            UsageError: a model of this kind does not tell.
        """
        raise UsageError(
            "tells no likelihoods, which this task asks for",
            where=f"model={self.where}",
            got=f"a {self.kind}",
            expected="a run of train, or a folder that its export wrote",
            hint="take a task that generates, or the harness's own local-completions",
        )

    def to_json(self) -> dict[str, Any]:
        """Return what a report says of it, JSON-like."""
        return {"kind": self.kind, "digest": self.digest[:16]}
