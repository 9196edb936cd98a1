"""Which rows a chat template renders, by which template, and what a folder says of it."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from pairmill import storage
from pairmill.chats import families
from pairmill.chats.account import CONFIG, TemplateFailed
from pairmill.chats.control import ControlTokens, known_tokens, require_tokens
from pairmill.chats.encode import IDS_MISMATCH
from pairmill.chats.long_rows import LONG_ANSWER, LONG_PROMPT
from pairmill.chats.render import PrefixMismatch, chat_from_pair, render
from pairmill.chats.template import ChatTemplate
from pairmill.engine.inputs import HELD_OUT, InputFile, Inputs
from pairmill.engine.manifest import canonical
from pairmill.engine.stage import ShardRecord
from pairmill.errors import Attempts, InputError, UsageError
from pairmill.formats import row_files
from pairmill.formats.chat_digests import differing_line
from pairmill.formats.templates import DEFAULT, ROWS, TEMPLATES
from pairmill.formats.tokenizer_file import locate, read
from pairmill.stages.tokenize.config import NONE, TokenizeConfig
from pairmill.stages.tokenize.encode import EncodeRows
from pairmill.stages.tokenize.rendered import EncodeChats

_TRIAL = chat_from_pair("direct", "Hi", "Hello")


@dataclass(frozen=True)
class ChatPlan:
    """Which row files are rendered.

    Args:
        template: the one template of all; None = no row is rendered.
        digest: over template and tokenizer.
        boundaries: of the files with chats beside their rows, by task: how they are encoded.
        beside: the files with the chats, by task.
        pairs: whether pairs are rendered too.
        boundary: how those are encoded whose source does not say.
        least: tokens of a response.
        every: whether all rows are rendered.
        long_rows: what becomes of long rows, as JSON by task.
        context: tokens of the longest row.
    """

    template: ChatTemplate | None = None
    digest: str = ""
    boundaries: Mapping[str, str] = field(default_factory=dict)
    beside: Mapping[str, InputFile] = field(default_factory=dict)
    pairs: bool = False
    boundary: str = ""
    least: int = 1
    every: bool = False
    long_rows: Mapping[str, str] = field(default_factory=dict)
    context: int = 0

    @classmethod
    def from_inputs(cls, config: TokenizeConfig, inputs: Inputs, tokenizer: bytes, uri: str) -> Self:
        """Find the template of the rows, and the chats beside them.

        Raises:
            UsageError: the option names no template that can be used.
            InputError: two templates; a tokenizer without its control tokens; or rows without their chats.
        """
        settings = {file.task: inputs.templates.get(file.task.removeprefix(HELD_OUT), {}) for file in inputs.files}
        long_rows = {
            task: json.dumps(item["long_rows"], sort_keys=True)
            for task, item in settings.items()
            if "long_rows" in item
        }
        if long_rows and config.profile == "data_io":
            raise UsageError(
                "the reference makes no long row fit",
                where="profile",
                got=f"data_io, and {next(iter(long_rows))} of a source with long_prompt: or long_answer:",
                expected="profile=pairmill",
            )
        files = [file for file in inputs.files if "text" in settings[file.task]]
        given = {file.task: settings[file.task] for file in files}
        known = {task: ChatTemplate.from_data(item, f"the template of {task}") for task, item in given.items()}
        if known and config.profile == "data_io":
            raise UsageError(
                "the reference renders no chats",
                where="profile",
                got=f"data_io, and {next(iter(known))}, which a chat template rendered",
                expected="profile=pairmill, or rows of sources with template: plain",
            )
        asked = config.chat_template
        if asked == ROWS and not known:
            raise UsageError(
                "no row is rendered",
                where="template",
                got=ROWS,
                expected="rows of a source with a chat template:",
                hint=f"name the template, as in template=chatml, or the path of one ({CONFIG})",
            )
        if asked and asked != ROWS:
            known["pairs"] = _load(asked)
        templates = {item.digest: (task, item) for task, item in known.items()}
        if not templates:
            return cls(long_rows=long_rows, context=config.context_size)
        (task, template), *others = templates.values()
        for other, item in others:
            raise InputError(
                "two chat templates render the rows of one run",
                where="rows" if "pairs" not in (task, other) else "rows, template",
                got=f"{template.digest} of {task}, {item.digest} of {other}; "
                + differing_line(template.to_data(), item.to_data()),
                expected="one template, with one set of variables",
                hint="write one template: in the YAML files of the sources, or tokenize them apart",
            )
        _require_tokens(template, asked, tokenizer.decode(errors="replace"), uri, config.plain_marks)
        beside = row_files.beside_each(files)
        chats = {file.task: beside.get(file.uri, {}).get("source") for file in files}
        for file in files:
            if chats[file.task] is None:
                raise InputError(
                    "rendered rows without their chats",
                    where=f"rows={file.uri}",
                    expected=f"attributes/source/{file.task}.parquet of the folder that the rows are from",
                    hint="give the whole folder",
                )
        digest = hashlib.sha256(canonical([template.to_data(), hashlib.sha256(tokenizer).hexdigest()])).hexdigest()[:16]
        return cls(
            template,
            digest,
            boundaries={task: item["boundary"] or config.boundary for task, item in given.items()},
            beside={task: item for task, item in chats.items() if item is not None},
            pairs=bool(asked),
            boundary=config.boundary,
            least=config.min_response_tokens,
            every=bool(asked) or len(files) == len(inputs.files),
            long_rows=long_rows,
            context=config.context_size,
        )

    def rendering(self, shard: EncodeRows, file: InputFile) -> EncodeChats | None:
        """Return the shard in place of that of plain rows; None if no template renders the rows of the file."""
        chats = self.beside.get(file.task)
        long_rows = self.long_rows.get(file.task, "")
        rendered = self.template is not None and (chats is not None or self.pairs)
        if not rendered and not long_rows:
            return None
        return EncodeChats(
            tokenizer=shard.tokenizer,
            part=shard.part,
            is_piece=shard.is_piece,
            held_out=shard.held_out,
            template=json.dumps(self.template.to_data(), sort_keys=True) if rendered and self.template else "",
            boundary=self.boundaries.get(file.task, self.boundary),
            least=self.least,
            chats=chats,
            long_rows=long_rows,
            context=self.context if long_rows else 0,
            name=shard.name,
            size=shard.size + (chats.size if chats else 0),
        )

    @property
    def options(self) -> dict[str, Any]:
        """What the manifest says of its options."""
        return {"context_size": self.context} if self.long_rows else {}

    @property
    def described(self) -> dict[str, Any]:
        """What manifest and ``tokenizer_info`` say of the template; empty without one."""
        return {} if self.template is None else {"digest": self.digest, **self.template.to_data()}

    def with_delimiters(self, config: TokenizeConfig, tokenizer: bytes, *, only: bool) -> TokenizeConfig:
        """Return the options with delimiters that the tokenizer has, where no row has any around it.

        Args:
            tokenizer: the tokenizer.json.
            only: whether there are rows alone, and no token files.
        """
        default = TEMPLATES[DEFAULT]
        if self.template is None or not only or config.template in families.FAMILIES:
            return config
        if (config.boq, config.eoq, config.eoa) != (default.boq, default.eoq, default.eoa) or not self.every:
            return config
        control = ControlTokens.from_json(tokenizer.decode(errors="replace"), self.template.literals)
        if default.tokens <= known_tokens(tokenizer.decode(errors="replace")):
            return config
        try:
            prompt, rest = render(self.template, _TRIAL)
        except (PrefixMismatch, TemplateFailed):
            prompt = rest = ""
        before, after = (
            [hit for hit in control.pattern.findall(text) if hit in control.special] for text in (prompt, rest)
        )
        some = [*before, *after, *control.special[:1]]
        if not some:
            return config
        end = (after or some[-1:])[0]
        return replace(config, boq=some[0], eoq=(before or [end])[-1], eoa=end, conditions=[NONE])


def check(
    config: TokenizeConfig, tokenizer: str, trained: Sequence[str], renderings: Mapping[str, Mapping[str, Any]]
) -> None:
    """Refuse templates that do not exist, or whose control tokens the tokenizer lacks, before there are rows.

    Args:
        tokenizer: where a given one is; empty = it will be trained.
        trained: the special tokens of one that will be trained.
        renderings: by source, what renders its chats.
    """
    asked = config.chat_template
    chosen = {} if asked in ("", ROWS) else {"template": _load(asked)}
    if tokenizer:
        uri = locate(tokenizer)
        text = read(uri).decode(errors="replace")
        for name, item in renderings.items():
            chosen[name] = ChatTemplate.from_data(item, f"the template of {name}")
    else:
        uri = "tokenizer= (the one that this run trains)"
        tokens = [{"id": number, "content": token, "special": True} for number, token in enumerate(trained)]
        text = json.dumps({"added_tokens": tokens})
    attempts = Attempts()
    for template in chosen.values():
        with attempts.each():
            _require_tokens(template, asked, text, uri, config.plain_marks)
    attempts.refuse()


def _require_tokens(template: ChatTemplate, asked: str, tokenizer: str, uri: str, plain: Sequence[str]) -> None:
    """Raise InputError if a tokenizer lacks a control token that a template writes; ``asked`` is the option's."""
    named = [token for name, token in template.tokens if name in template.text]
    # Of a family whose own tokens the tokenizer lacks, another error names the one that fits.
    if asked not in families.FAMILIES or TEMPLATES[asked].tokens <= known_tokens(tokenizer):
        require_tokens(template.literals, named, tokenizer, uri, plain)


def _load(given: str) -> ChatTemplate:
    """Return the template of a family, of a file, or of a folder with a ``tokenizer_config.json``."""
    if given not in families.FAMILIES and not given.endswith((".jinja", ".jinja2", ".j2", ".json", ".txt")):
        given = storage.join(storage.normalise(given, "template"), CONFIG)

    def read(path: str) -> bytes:
        uri = storage.normalise(path, "template")
        store = storage.store_for(uri)
        if not store.exists(uri):
            raise UsageError("no such file", where="template", got=uri, expected="a chat template")
        return store.read(uri)

    return families.load(given, "template", read)


_HINTS = {
    IDS_MISMATCH: "boundary=apart keeps them",
    LONG_PROMPT: "raise context_size=, or leave out more: what window: {keep: …} names (system messages, declarations "
    "of tools, the first question) is never clipped",
    LONG_ANSWER: "raise context_size=, or write long_answer: cut or split in the YAML file of the source",
}
"""What to do, by the reason of most rows."""


def refuse_none_kept(records: Iterable[ShardRecord]) -> None:
    """Raise InputError, with the reasons, if rows were read and all were dropped."""
    dropped: dict[str, int] = {}
    for record in records:
        for reason, count in record.ledger.dropped.items():
            dropped[reason] = dropped.get(reason, 0) + count
    if dropped:
        raise InputError(
            "no row is kept",
            where="rows",
            got=", ".join(
                f"{count:,} {reason}" for reason, count in sorted(dropped.items(), key=lambda item: -item[1])
            ),
            expected="rows whose whole begins with their prompt, and that fit into context_size=",
            hint=_HINTS.get(max(dropped, key=lambda reason: dropped[reason]), "look at the chat template"),
        )
