"""Probes: an exported folder gives the ids that training saw, by the programs that will load it.

A tokenizer's file alone does not say its ids: ``fix_mistral_regex=true`` beside it changed those of a line break, and a
team found out after two million steps.
"""

import logging
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypeAlias

from tokenizers import Tokenizer

from pairmill.encoder import PROBES
from pairmill.errors import InputError
from pairmill.log import event
from pairmill.nets.generate.prompts import Prompts
from pairmill.nets.trained import TOKENIZER

Encode: TypeAlias = Callable[[str], list[int]]
_TEXTS: Final = ("Hello, world!\nNext line.", "a\n\nb", "1,234.5\tx", "def f(x):\n    return x\n", *PROBES)
_MAX_ADDED: Final = 200


def check(folder: Path, prompts: Prompts) -> list[str]:
    """Compare ids of fixed texts, with control tokens in them, and return the programs that gave the same.

    If a chat template renders prompts, those of the texts are compared too: a text that spells a control token is left
    out there, since other programs take it for the token.

    Raises:
        InputError: a program gives other ids.
    """
    text = (folder / TOKENIZER).read_text(encoding="utf-8")
    tokenizer = Tokenizer.from_str(text)
    added = [token.content for token in tokenizer.get_added_tokens_decoder().values()][:_MAX_ADDED]
    probes = [*_TEXTS, *(f"a {token}b\n{token}" for token in added)]
    expected = [tokenizer.encode(probe, add_special_tokens=False).ids for probe in probes]
    questions = [probe.strip() for probe in _TEXTS if probe.strip() and not any(item in probe for item in added)]
    chats = questions if prompts.template is not None else []
    asked = [prompts.ids(probe) for probe in chats]
    compared = []
    for program, encode, render in _programs(folder, prompts):
        pairs = [*zip(probes, expected, strict=True), *zip(chats, asked, strict=True)]
        for number, (probe, ids) in enumerate(pairs):
            if (got := encode(probe if number < len(probes) else render(probe))) != ids:
                raise InputError(
                    f"{program} gives other ids than training saw",
                    where=f"the exported folder, text {probe!r}",
                    got=f"{got[:20]}",
                    expected=f"{ids[:20]}",
                    hint=f"install another version of {program}, or report this with the tokenizer file",
                )
        compared.append(program)
    if not compared:
        message = "export: transformers is not installed, so the folder's ids are compared with no other program's"
        event(message, level=logging.WARNING)
    else:
        event(
            f"export: ids of {len(probes) + len(chats)} texts are equal in {' and '.join(compared)}", probes=len(probes)
        )
    return compared


def _programs(folder: Path, prompts: Prompts) -> Iterator[tuple[str, Encode, Callable[[str], str]]]:
    """Yield the programs that are installed, how each encodes, and how it renders a question; they take seconds."""
    variables = dict(prompts.template.variables) if prompts.template is not None else {}

    def rendering(tokenizer: Any) -> Callable[[str], str]:
        def render(question: str) -> str:
            chat = [{"role": "user", "content": question}]
            text: str = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True, **variables)
            return text

        return render

    if find_spec("transformers"):
        loaded: Any = import_module("transformers").AutoTokenizer.from_pretrained(folder)
        encode: Encode = lambda text: list(loaded(text, add_special_tokens=False)["input_ids"])  # noqa: E731
        yield "transformers", encode, rendering(loaded)
    if find_spec("vllm"):
        served: Any = import_module("vllm.transformers_utils.tokenizer").get_tokenizer(str(folder))
        yield "vllm", lambda text: list(served.encode(text, add_special_tokens=False)), rendering(served)
