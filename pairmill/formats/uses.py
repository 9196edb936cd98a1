"""Results that are not rows to train on: prompts for reinforcement learning, and pairs of a better and a worse answer.

They are Parquet files in ``prompts/`` and ``pairs/`` of clean's folder. Beside the columns of their readers each
has the three of a row: the prompt and the answer as text, so that curate finds duplicates and leaks in them.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa

from pairmill.engine.inputs import PAIRS, PROMPTS

_TEXTS: Final = {"condition": pa.string(), "instruction": pa.string(), "response": pa.string()}
_TURNS: Final = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
_MESSAGES: Final = pa.list_(
    pa.struct(
        [(name, pa.string()) for name in ("role", "content", "reasoning_content", "tool_calls", "tool_call_id", "name")]
    )
)
"""Messages in OpenAI's form; ``tool_calls`` is JSON, because the arguments of every tool have other names."""

COLUMNS: Final[Mapping[str, Mapping[str, pa.DataType]]] = {
    PROMPTS: {
        "data_source": pa.string(),
        "prompt": _TURNS,
        "ability": pa.string(),
        "reward_model": pa.struct([("style", pa.string()), ("ground_truth", pa.string())]),
        "extra_info": pa.struct(
            [
                ("index", pa.int64()),
                ("split", pa.string()),
                ("source", pa.string()),
                ("prompt_characters", pa.int64()),
                ("more", pa.string()),
            ]
        ),
        **_TEXTS,
    },
    PAIRS: {
        **dict.fromkeys(("id", "source", "task_family", "language"), pa.string()),
        "prompt_messages": _MESSAGES,
        "tools": pa.string(),
        "chosen_completion_messages": _MESSAGES,
        "rejected_completion_messages": _MESSAGES,
        "metadata": pa.string(),
        **_TEXTS,
    },
}
"""Columns of each use with their types, in order: verl's, and the nine of a preference row; ``tools``, ``metadata`` and
``more`` are JSON, null where there is nothing."""

TYPES: Final = {name: kind for columns in COLUMNS.values() for name, kind in columns.items() if name not in _TEXTS}


def further_columns(names: Sequence[str]) -> list[str]:
    """Return the columns beside the three of a row, if these are the columns of prompts or of pairs; else none."""
    is_known = any(list(names) == list(columns) for columns in COLUMNS.values())
    return [name for name in names if name in TYPES] if is_known else []
