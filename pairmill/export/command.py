"""``pairmill export <result> to=<format> output=<folder>``."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Final, Literal

from pairmill import storage
from pairmill.engine.inputs import PAIRS, PROMPTS
from pairmill.engine.options import option
from pairmill.errors import InputError, UsageError
from pairmill.export.parts import Exported
from pairmill.export.read_rows import from_rows, from_use, uses_in
from pairmill.export.read_tokens import PART_TOKENS, from_plan, from_sampled, from_tokenized
from pairmill.export.write import Format, write
from pairmill.fields import Checked
from pairmill.formats.opened import OpenResult, open_result
from pairmill.formats.tokenized_path import places
from pairmill.interface import cli
from pairmill.policy.warn import warn_of_removed

_TABLES: Final = "pairmill.export.tables"
_BINARY: Final = "pairmill.export.binary"
_TEXT: Final = ("rows", PROMPTS, PAIRS)
FORMATS: Final[Mapping[str, Format]] = {
    "datasets": Format(_TABLES, "parquet", ("tokens", "rows")),
    "arrow": Format(_TABLES, "arrow", ("tokens", "rows")),
    "megatron": Format(_BINARY, "megatron", ("tokens",)),
    "flat": Format(_BINARY, "flat", ("tokens",)),
    "litdata": Format("pairmill.export.shards", "litdata", ("tokens",), "litdata"),
    "trl": Format(_TABLES, "parquet", _TEXT),
    "verl": Format(_TABLES, "parquet", (PROMPTS,)),
    "transformers": Format("pairmill.stages.train.export.command", "", ("train",), "'pairmill[train]'"),
}
"""By the value of ``to``."""
_IN_PARTS: Final = ("datasets", "arrow", "litdata")
"""Formats whose readers keep the order of several files."""


@dataclass(kw_only=True)
class ExportConfig(Checked):
    """Write a finished result in the form that other trainers read (docs/export.md)."""

    result: str = option(help="what to export: the folder of rows, tokens, a plan, sampled arrays, or a trained run")
    to: Literal["datasets", "arrow", "megatron", "flat", "litdata", "trl", "verl", "transformers"] = option(
        help="datasets (Parquet for load_dataset), arrow (for load_from_disk), megatron (.bin and .idx), flat (ids and "
        "metadata.yaml of tatm), litdata, trl and verl (columns of prompts and pairs), transformers (a net)"
    )
    output: str = option(help="folder or URI to make; a killed export goes on there", filled=True)
    columns: Literal["messages", "pair"] = option(
        "messages", help="with to=datasets or arrow, of rows: a chat, or the texts prompt and completion"
    )
    part_tokens: int = option(
        0,
        help="tokens of a file, about; 0 = 67,108,864, and with to=megatron or flat a file a task or epoch",
        at_least=0,
    )


def run(config: ExportConfig) -> str:
    """Export; returns the folder and a line end.

    Raises:
        UsageError: the format is not for such a result, or the output has something else in it.
        InputError: there is no such result, or it is unfinished or damaged.
    """
    several = "," in config.result and len(places(config.result, "result")) > 1
    opened = None if several else open_result(config.result, "result")
    if opened is not None:
        warn_of_removed(opened)
    if config.to == "transformers" or (opened is not None and opened.kind == "net"):
        return _export_net(config)
    exported = _open(config, opened)
    form = FORMATS[config.to]
    if exported.kind not in form.kinds:
        fitting = ", ".join(f"to={name}" for name, it in FORMATS.items() if exported.kind in it.kinds)
        got = f"{config.to} of {exported.kind}"
        raise UsageError("not a form of such a result", where="to", got=got, expected=fitting)
    folder = storage.normalise(config.output, "output")
    write(exported, form, config.to, folder)
    return f"{folder}\n"


def _open(config: ExportConfig, opened: OpenResult | None) -> Exported:
    part_tokens = config.part_tokens or (PART_TOKENS if config.to in _IN_PARTS else sys.maxsize)
    if opened is None or opened.kind == "tokenized":
        return from_tokenized(config.result, "result", part_tokens)
    uri, manifest = opened.uri, opened.manifest
    if opened.kind == "plan" and manifest is not None:
        return from_plan(uri, manifest, part_tokens)
    if opened.kind == "sampled":
        return from_sampled(storage.local_path(uri).as_posix(), part_tokens)
    if opened.kind != "rows":
        raise UsageError(
            "not a result to train on",
            where="result",
            got=opened.kind,
            expected="rows, tokens, a plan, arrays or a net",
        )
    uses = uses_in(opened)
    if config.to == "verl" or (config.to == "trl" and uses):
        use = PROMPTS if config.to == "verl" else [*uses][-1]
        if use not in uses:
            hint = "describe the source with use: prompts (docs/sources.md)"
            raise InputError("has no prompts with a ground truth", where=uri, expected=f"a folder {use}/", hint=hint)
        return from_use(uses[use], use, config.to)
    return from_rows(uri, "result", "turns" if config.to == "trl" else config.columns)


def _export_net(config: ExportConfig) -> str:
    if config.to != "transformers":
        hint = "write to=transformers, or pairmill train export, which has more options"
        raise UsageError("not a form of a trained run", where="to", got=config.to, hint=hint)
    # It needs torch, which no other format does.
    module = import_module(FORMATS["transformers"].module)
    result: str = module.export(module.ExportConfig(run=config.result, output=config.output))
    return result


main = partial(cli.run_command, "export", cli.Command(ExportConfig, run), first="result")
