"""Chats, templates, and the plain recipe that rendered rows are compared with: jinja2 and tokenizers alone."""

import json
import random
from collections.abc import Iterator
from typing import Any

from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

CHATML = """{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
STRIPS_THINKING = """{%- for m in messages %}
{%- set text = m.content %}
{%- if m.role == 'assistant' and not loop.last %}{% set text = text.split('</think>')[-1].lstrip('\\n') %}{% endif %}
{{- '<|im_start|>' ~ m.role ~ '\\n' ~ text ~ '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
TRIMS = """{{- '<|endoftext|>' }}{% for m in messages %}
{{- '<|im_start|>' + m['role'] + '<|box_end|>\\n\\n' + m['content'] | trim + '<|im_end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant<|box_end|>\\n\\n' }}{% endif %}"""
TOOLS = """{%- if tools %}{{ '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{ messages[0].content + '\\n\\n' }}{% endif %}
{{- '# Tools' }}{% for tool in tools %}{{ '\\n' }}{{ tool | tojson }}{% endfor %}{{ '<|im_end|>\\n' }}
{%- endif %}
{%- for m in messages if m.role != 'system' or not tools %}
{{- '<|im_start|>' + ('user' if m.role == 'tool' else m.role) + '\\n' }}
{%- if m.role == 'tool' %}{{ '<tool_response>\\n' + m.content + '\\n</tool_response>' }}
{%- else %}{{ m.content }}{% for call in m.tool_calls or [] %}
{{- '\\n<tool_call>\\n' + (call.function | tojson) + '\\n</tool_call>' }}{% endfor %}{% endif %}
{{- '<|im_end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
BLANK_LINES = """{{- '<|im_start|>' }}{% for m in messages %}{% if m.role != 'assistant' or not loop.last %}
{{- '\\n\\n' if not loop.first }}{{ (m.role ~ ': ' if m.role != 'user' else '') ~ m.content }}{% endif %}{% endfor %}
{{- '<|im_end|>' }}
{%- if not add_generation_prompt %}{{ messages[-1].content ~ '<|box_end|>' }}{% endif %}"""
FIVE = {
    "chatml": CHATML,
    "strips": STRIPS_THINKING,
    "trims": TRIMS,
    "tools": TOOLS,
    "blank lines": BLANK_LINES,
}
SPECIAL = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|box_end|>")

_WORDS = (
    *(
        "the",
        "cat",
        "What is",
        "seven",
        "12345",
        "don't",
        "é",
        "日本語",
        "e\u0301",
        "a < b",
        "x > y",
        "|",
        "\n",
        "\n\n",
    ),
    *(" ", "  ", "\t", "!", "...", "<b>", "</b>", "List<int>", "a |> f", "{}", '"', "\\", "<think>", "\u00a0", "😀"),
)


def _text(draw: random.Random, words: tuple[str, ...], most: int) -> str:
    return draw.choice(("", " ")).join(draw.choice(words) for _ in range(draw.randint(1, most))) or "a"


def chats(number: int, seed: int, spelled: tuple[str, ...] = ()) -> Iterator[dict[str, Any]]:
    """Messages and tools; the answer is the last message. ``spelled`` are further words of the texts."""
    draw = random.Random(seed)
    words = (*_WORDS, *spelled)
    for _ in range(number):
        made: list[dict[str, Any]] = []
        tools = None
        if draw.random() < 0.3:
            made.append({"role": "system", "content": _text(draw, words, 4)})
        if draw.random() < 0.3:
            about = {"name": "find", "description": _text(draw, words, 3), "parameters": {"type": "object"}}
            tools = [{"type": "function", "function": about}]
        for turn in range(draw.randint(1, 3)):
            made.append({"role": "user", "content": _text(draw, words, 8)})
            if tools and draw.random() < 0.5:
                arguments = {_text(draw, words, 1): _text(draw, words, 2)}
                call = {"id": f"c{turn}", "type": "function", "function": {"name": "find", "arguments": arguments}}
                made.append({"role": "assistant", "content": "", "tool_calls": [call]})
                made.append({"role": "tool", "content": _text(draw, words, 3), "tool_call_id": f"c{turn}"})
            thought = f"<think>\n{_text(draw, words, 3)}\n</think>\n\n" if draw.random() < 0.3 else ""
            made.append({"role": "assistant", "content": thought + _text(draw, words, 8)})
        yield {"messages": made, **({"tools": tools} if tools else {})}


class Recipe:
    """Prompt and whole as text, each encoded whole with special tokens recognised and none added."""

    def __init__(self, template: str, tokenizer: str, **known: Any) -> None:
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters["tojson"] = lambda value, **options: json.dumps(value, ensure_ascii=False, **options)
        self._template, self._known = environment.from_string(template), known
        self._tokenizer = Tokenizer.from_str(tokenizer)

    def render(self, chat: dict[str, Any]) -> tuple[str, str]:
        known = {"tools": chat.get("tools"), **self._known}
        prompt = self._template.render(messages=chat["messages"][:-1], add_generation_prompt=True, **known)
        return prompt, self._template.render(messages=chat["messages"], add_generation_prompt=False, **known)

    def encode(self, prompt: str, whole: str) -> tuple[list[int], list[int]] | None:
        """Ids of prompt and response; None if the row is dropped."""
        first, both = (self._tokenizer.encode(text, add_special_tokens=False).ids for text in (prompt, whole))
        return (first, both[len(first) :]) if both[: len(first)] == first and len(both) > len(first) else None
