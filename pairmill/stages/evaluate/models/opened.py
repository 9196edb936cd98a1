"""From what the user gave to a model."""

from pairmill import storage
from pairmill.errors import InputError, UsageError
from pairmill.evaluation.settings import EvaluateSettings
from pairmill.nets.run import Run
from pairmill.stages.evaluate.models.exported import ExportedModel
from pairmill.stages.evaluate.models.model import Model
from pairmill.stages.evaluate.models.server import ServedModel
from pairmill.stages.evaluate.models.trained import TrainedModel


def open_model(given: str, settings: EvaluateSettings, tokenizer: str = "") -> Model:
    """Return the model at a URL, or in a folder.

    Args:
        given: a run of train, a folder that its export wrote, or the URL of a server.
        settings: of the evaluation.
        tokenizer: tokenizer.json of a run that was trained without, or that a server has to have; empty = that of the
            model.

    Raises:
        InputError: the folder is neither a run of train nor an exported one.
        UsageError: a setting does not suit it.
    """
    if given.startswith(("http://", "https://")):
        return ServedModel.open(given, settings.server, tokenizer)
    uri = storage.normalise(given, "model")
    store = storage.store_for(uri)
    if store.exists(storage.join(uri, "prompt.json")) and store.exists(storage.join(uri, "config.json")):
        _refuse_tokenizer(tokenizer, given)
        return ExportedModel.open(uri, settings.net)
    try:
        run = Run.open(given, "model", tokenizer)
    except InputError as error:
        raise InputError(
            f"not a model: {error.what}",
            where=f"model={given}",
            got=error.got,
            expected="a finished run of train, a folder that its export wrote, or the URL of a server",
            hint="a server's URL ends as in http://host:8000/v1" if "/" not in given else error.hint,
        ) from error
    return TrainedModel.from_run(run, given, settings.net)


def _refuse_tokenizer(tokenizer: str, model: str) -> None:
    if tokenizer:
        raise UsageError(
            "the model has a tokenizer of its own",
            where="tokenizer",
            got=f"{tokenizer}, for {model}",
            expected="nothing",
        )
