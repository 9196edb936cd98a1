"""A folder that ``pairmill.stages.train export`` wrote, loaded by stock transformers as any other program would."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Self

from pairmill import storage
from pairmill.engine.manifest import digest_files
from pairmill.errors import UsageError
from pairmill.evaluation.settings import Generation, Net
from pairmill.stages.evaluate.models.model import Likelihood, Model, Prompt, Text


@dataclass(frozen=True)
class ExportedModel(Model):
    """Args: folder: on this machine; net: how it runs here."""

    kind: ClassVar[str] = "exported folder"

    folder: str = ""
    net: Net = field(default_factory=Net)

    @classmethod
    def open(cls, uri: str, net: Net) -> Self:
        """Digest the folder.

        Raises:
            UsageError: it is not on this machine, or a setting does not suit it.
        """
        if storage.scheme(uri) != "file":
            hint = "copy the folder to this machine: transformers reads local files"
            raise UsageError("not a folder of this machine", where="model", got=uri, hint=hint)
        if net.weights != "auto":
            hint = "export wrote one kind of weights: leave out net.weights"
            raise UsageError("does not suit an exported folder", where="net.weights", got=net.weights, hint=hint)
        digest = cls.digest_of(_digest_of_folder(uri), net.precision, net.special_tokens, net.unknown_tags)
        return cls(digest, uri, str(storage.local_path(uri)), net)

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "precision": self.net.precision}

    def answers(self, asked: Sequence[Prompt], generation: Generation) -> list[list[Text]]:
        result: list[list[Text]] = self._net().generate_answers(self.folder, self.net, asked, generation)
        return result

    def likelihoods(self, asked: Sequence[Prompt], endings: Sequence[str]) -> list[Likelihood]:
        result: list[Likelihood] = self._net().measure_likelihoods(self.folder, self.net, asked, endings)
        return result

    def _net(self) -> Any:
        try:  # torch and transformers, which take seconds
            from pairmill.stages.evaluate.models import exported_net
        except ImportError as error:
            hint = "pip install transformers torch, or give the run itself: model=<the folder that train printed>"
            raise UsageError(
                "needs transformers, not installed here", where="model", got=self.folder, hint=hint
            ) from error
        return exported_net


def _digest_of_folder(uri: str) -> str:
    """Hexadecimal sha256 over names and contents of the files in a folder, those of hidden ones and texts left out."""
    paths = sorted(item.path for item in storage.store_for(uri).list(uri))
    return digest_files(uri, [path for path in paths if path.endswith(_WEIGHTS_AND_SETTINGS)])


_WEIGHTS_AND_SETTINGS: Final = (".json", ".safetensors", ".jinja", ".model", ".bin")
