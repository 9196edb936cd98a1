"""Control tokens that chat templates wrote into rows, where they are no control tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pairmill.engine.written_texts import WrittenTexts
from pairmill.errors import InputError

_SHOWN = 5


def refuse_written(sources: Mapping[str, WrittenTexts], tokenizer: bytes, uri: str) -> None:
    """Raise InputError if the chat template of a source wrote an added token of the tokenizer into its rows.

    Tokenize takes a special token in a text for plain text, and puts BOQ, EOQ and EOA around the row itself.

    Args:
        sources: what their templates wrote, by name.
        tokenizer: the tokenizer.json; one that cannot be read has no tokens here.
        uri: of the tokenizer.
    """
    known = _added_tokens(tokenizer) if sources else []
    result = {
        name: [item for item in known if any(item in text for text in said.texts)] for name, said in sources.items()
    }
    wrong = [f"{', '.join(tokens[:_SHOWN])} of {name}" for name, tokens in result.items() if tokens]
    if wrong:
        raise InputError(
            "a chat template wrote tokens of the tokenizer, which are plain text within a row",
            where=uri,
            got="; ".join(wrong[:_SHOWN]),
            expected="rows whose template: writes no added token; tokenize puts boq, eoq and eoa around each row",
            hint="write 'template: plain' in the YAML file of the source, or a template with words such as 'User:', "
            "and run clean again",
        )


def _added_tokens(tokenizer: bytes) -> list[str]:
    """Return the added tokens that control a text: the special ones, and others that are not just a word or sign."""
    try:
        listed = json.loads(tokenizer)["added_tokens"]
        tokens = [(str(item["content"]), bool(item.get("special"))) for item in listed]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return []
    return [text for text, special in tokens if text.strip() and (special or _is_mark(text.strip()))]


def _is_mark(text: str) -> bool:
    return any(map(str.isalnum, text)) and not text.isalnum()
