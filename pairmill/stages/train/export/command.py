"""``export``: a finished run as a folder for transformers, and for ``hf upload``."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Literal

from pairmill import nets, storage
from pairmill.engine.options import option
from pairmill.errors import UsageError
from pairmill.extras import require
from pairmill.fields import Checked
from pairmill.log import event
from pairmill.nets.generate.prompts import Prompts
from pairmill.nets.run import Run, Weights
from pairmill.nets.trained import TOKENIZER
from pairmill.stages.train.export import convert, probes
from pairmill.stages.train.export.card import card
from pairmill.stages.train.export.provenance import trace
from pairmill.storage.base import translated

EXAMPLE = Path(__file__).with_name("example.py")
CHAT_TEMPLATE = "chat_template.jinja"


@dataclass(kw_only=True)
class ExportConfig(Checked):
    """Write a finished run as a folder that transformers loads without code of others."""

    run: str = option(help="the folder that train printed, or a root with one finished run, or a checkpoint")
    output: str = option(help="folder to make, on this machine; nothing may be in it")
    weights: Weights = option(
        "auto", help="ema, current, or auto: those with the lower held-out loss, where both are known, else ema"
    )
    dtype: Literal["float32", "bfloat16", "float16"] = option("float32", help="of the weights in the files")
    max_shard_size: str = option(
        "5GB",
        help="largest file of weights, as 500MB or 5GB",
        form=(r"[1-9]\d*(KB|MB|GB)", "a number and KB, MB or GB, as 500MB"),
        filled=True,
    )
    tokenizer: str = option("", help="tokenizer.json of the data, for a run that was trained without")
    root: str = option("", help="project folder in which the manifests of the data are; empty = that of the run")


def export(config: ExportConfig) -> str:
    """Write the folder; returns its path and a line end.

    Raises:
        UsageError: transformers has no class that computes the net, or the folder has something in it.
        InputError: not a finished run, or transformers makes other ids of the folder's tokenizer.
        StorageError: the folder cannot be written; nothing of it is left.
    """
    require("train", "torch", "safetensors", where="export")
    output = _output(config.output)
    run = Run.open(config.run, tokenizer=config.tokenizer)
    model = run.trained.net
    convert.refuse(model)
    weights, reason = run.choose_weights(config.weights)
    event(f"export: {weights} weights ({reason})", weights=weights)

    prompts = Prompts(run.tokenizer, run.trained.tokenizer_info, where=run.uri)
    tokens = _special_tokens(run, prompts)
    config_json = convert.config_of(
        model, run.trained.vocab_size, run.trained.positions, {f"{name}_id": item[1] for name, item in tokens.items()}
    )
    config_json["dtype"] = config.dtype
    with _whole(output) as folder:
        _write_weights(folder, run, weights, config)
        _json(folder / "config.json", config_json)
        eos = {name: value for name, value in config_json.items() if name.endswith("_token_id") and value is not None}
        _json(folder / "generation_config.json", {**eos, "do_sample": False})
        (folder / TOKENIZER).write_text(run.tokenizer, encoding="utf-8")
        if prompts.template is not None:
            (folder / CHAT_TEMPLATE).write_text(prompts.template.text, encoding="utf-8")
        _json(folder / "tokenizer_config.json", _tokenizer_config(tokens, run.trained.positions))
        _json(folder / "prompt.json", {**prompts.layout(), "token_type_ids": config_json.get("prefix_lm", False)})
        shutil.copyfile(EXAMPLE, folder / "example.py")
        _write_card(folder, run, config_json, weights, reason, config)
        probes.check(folder, prompts)
    return f"{output}\n"


def _output(given: str) -> Path:
    uri = storage.normalise(given, "output")
    if storage.scheme(uri) != "file":
        hint = "export to a folder of this machine, and copy it"
        raise UsageError("not a folder of this machine", where="output", got=given, hint=hint)
    path = storage.local_path(uri)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError("not an empty folder", where="output", got=given, hint="name one that does not exist")
    return path


@contextmanager
def _whole(output: Path) -> Iterator[Path]:
    """Make a folder to fill, which takes its name when it is complete; if anything fails, nothing of it is left."""
    with translated(str(output)):
        output.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(mkdtemp(prefix=f".{output.name}.", dir=output.parent))
        try:
            folder.chmod(0o777 & ~_umask())
            yield folder
            for path in folder.iterdir():
                path.chmod(0o666 & ~_umask())  # files of weights are written for the owner alone
                with path.open("rb") as file:
                    os.fsync(file.fileno())
            folder.rename(output)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _special_tokens(run: Run, prompts: Prompts) -> dict[str, tuple[str | None, int | None]]:
    """Token and id that begin a prompt, end an answer, and pad: <|endoftext|>, or the end where there is none."""
    info = run.trained.tokenizer_info
    begin, end = info.get("boq"), (info.get("eoa", info.get("eod")), prompts.stop)
    if prompts.template is not None:
        begin, end = dict(prompts.template.tokens).get("bos_token"), (prompts.token_of(prompts.stop), prompts.stop)
    pad = ("<|endoftext|>", prompts.id_of("<|endoftext|>"))
    return {"bos_token": (begin, prompts.start), "eos_token": end, "pad_token": end if pad[1] is None else pad}


def _tokenizer_config(tokens: dict[str, tuple[str | None, int | None]], positions: int) -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{name: token for name, (token, _) in tokens.items() if token is not None},
        "model_max_length": positions,
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
    }


def _write_weights(folder: Path, run: Run, weights: Literal["ema", "current"], config: ExportConfig) -> None:
    from huggingface_hub import save_torch_state_dict

    tensors = convert.tensors_of(run.trained.net, run.tensors(weights))
    dtype = nets.device.dtype_of(config.dtype)
    save_torch_state_dict(
        {name: tensor.to(dtype) for name, tensor in tensors.items()},
        folder,
        max_shard_size=config.max_shard_size,
        metadata={"format": "pt"},
    )


def _write_card(folder: Path, run: Run, facts: dict[str, Any], weights: str, reason: str, config: ExportConfig) -> None:
    # <root>/train/<fingerprint>
    root = config.root or storage.parent_of(storage.parent_of(run.uri))
    inputs = run.manifest.inputs if run.manifest else []
    text = card(
        run.trained,
        facts,
        trace(storage.normalise(root, "root"), [ref.fingerprint for ref in inputs]),
        {ref.role: ref.fingerprint for ref in inputs},
        weights=weights,
        reason=reason,
        dtype=config.dtype,
        fingerprint=run.manifest.fingerprint if run.manifest else "",
    )
    (folder / "README.md").write_text(text, encoding="utf-8")


def _json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
