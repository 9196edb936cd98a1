"""Chat templates of families by name: a chat of questions and answers is rendered as the models' own templates do it.

The texts are ours. They have no form for tools, and those but ``qwen`` none for reasoning: a chat with such parts is
refused, and wants the model's own template. The form of a turn is a fact of each family, from these public sources:

- llama3: ``chat_format.py`` of meta-llama/llama3. Llama 3.1 and later put dates before the system text.
- chatml: ``chatml.md`` of openai-python. qwen: ``tokenizer_config.json`` of Qwen 3. smollm: that of SmolLM2.
- llama2: ``generation.py`` of meta-llama/llama. mistral, mistral_tekken: mistral-common, v3 and Tekken v3.
- gemma: ``tokenizer_config.json`` of Gemma 3. phi3, phi4, olmo (OLMo 2), deepseek (V3): the same of these models.
- gpt_oss: the guide of openai/harmony, without its line with the present date.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from pairmill.chats import template
from pairmill.chats.template import ChatTemplate
from pairmill.errors import UsageError, did_you_mean

_NONE = "{{ raise_exception('the template of the family has no form for WHAT; give that of the model') }}"
_GUARD = (
    f"{{%- if tools %}}{_NONE.replace('WHAT', 'tools')}{{% endif %}}{{% for m in messages %}}"
    f"{{%- if m.role == 'tool' or m.tool_calls %}}{_NONE.replace('WHAT', 'calls')}{{% endif %}}"
    f"{{%- if m.reasoning_content and not reasons %}}{_NONE.replace('WHAT', 'reasoning')}{{% endif %}}{{% endfor %}}"
)
# The system text goes into the first question, or the last.
_SYSTEM = (
    "{%- set system = messages[0].content if messages[0].role == 'system' else '' %}"
    "{%- set turns = messages[1:] if messages[0].role == 'system' else messages %}"
)
_CHATML = (
    "{%- for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\\n' ~ m.content ~ '<|im_end|>\\n' }}{% endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
_MISTRAL = (
    "{{- bos_token }}{% for m in turns %}{% if m.role == 'user' %}"
    "{%- set last = turns[loop.index0 + 1:]|selectattr('role', 'equalto', 'user')|list|length == 0 %}"
    "{{- '[INST]' ~ SPACE ~ (system ~ '\\n\\n' if system and last else '') ~ m.content ~ '[/INST]' }}"
    "{%- else %}{{ SPACE ~ m.content|trim ~ eos_token }}{% endif %}{% endfor %}"
)

_TEXTS: Final = {
    "llama3": "{{- bos_token }}{% for m in messages %}"
    "{{- '<|start_header_id|>' ~ m.role ~ '<|end_header_id|>\\n\\n' ~ m.content|trim ~ '<|eot_id|>' }}{% endfor %}"
    "{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}",
    "chatml": _CHATML,
    "smollm": "{%- if messages[0].role != 'system' %}{{ '<|im_start|>system\\n"
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\\n' }}{% endif %}" + _CHATML,
    "qwen": "{%- set ns = namespace(asked=-1) %}{% for m in messages %}{% if m.role == 'user' %}"
    "{%- set ns.asked = loop.index0 %}{% endif %}{% endfor %}{% for m in messages %}"
    "{{- '<|im_start|>' ~ m.role ~ '\\n' }}{% set said = m.content %}{% set thought = m.reasoning_content or '' %}"
    "{%- if m.role == 'assistant' %}{% if not thought and '</think>' in said %}"
    "{%- set thought = said.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}"
    "{%- set said = said.split('</think>')[-1].lstrip('\\n') %}{% endif %}"
    "{%- if loop.index0 > ns.asked and (loop.last or thought) %}"
    "{{- '<think>\\n' ~ thought.strip('\\n') ~ '\\n</think>\\n\\n' }}{% set said = said.lstrip('\\n') %}"
    "{%- endif %}{% endif %}"
    "{{- said ~ '<|im_end|>\\n' }}{% endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}{{ '<think>\\n\\n</think>\\n\\n' }}"
    "{%- endif %}{% endif %}",
    "llama2": _SYSTEM + "{%- for m in turns %}{% if m.role == 'user' %}"
    "{%- set before = '<<SYS>>\\n' ~ system ~ '\\n<</SYS>>\\n\\n' if system and loop.first else '' %}"
    "{{- bos_token ~ '[INST] ' ~ (before ~ m.content)|trim ~ ' [/INST]' }}"
    "{%- else %}{{ ' ' ~ m.content|trim ~ ' ' ~ eos_token }}{% endif %}{% endfor %}",
    "mistral": _SYSTEM + _MISTRAL.replace("SPACE", "' '"),
    "mistral_tekken": _SYSTEM + _MISTRAL.replace("SPACE", "''"),
    "gemma": _SYSTEM + "{{- bos_token }}{% for m in turns %}"
    "{{- '<start_of_turn>' ~ ('model' if m.role == 'assistant' else m.role) ~ '\\n' }}"
    "{{- (system ~ '\\n\\n' if system and loop.first else '') ~ m.content|trim ~ '<end_of_turn>\\n' }}{% endfor %}"
    "{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}",
    "phi3": "{%- for m in messages %}{{ '<|' ~ m.role ~ '|>\\n' ~ m.content ~ '<|end|>\\n' }}{% endfor %}"
    "{{- '<|assistant|>\\n' if add_generation_prompt else eos_token }}",
    "phi4": "{%- for m in messages %}"
    "{{- '<|im_start|>' ~ m.role ~ '<|im_sep|>' ~ m.content ~ '<|im_end|>' }}{% endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant<|im_sep|>' }}{% endif %}",
    # Its marks of turns are plain text to its tokenizer, so none is written in one piece.
    "olmo": "{{- bos_token }}{% for m in messages %}{{ '<|' ~ m.role ~ '|>\\n' ~ m.content }}"
    "{{- eos_token if m.role == 'assistant' }}{{ '\\n' if m.role != 'assistant' or not loop.last }}{% endfor %}"
    "{%- if add_generation_prompt %}{{ '<|' ~ 'assistant|>\\n' }}{% endif %}",
    "deepseek": _SYSTEM + "{{- bos_token ~ system }}{% for m in turns %}{% if m.role == 'user' %}"
    "{{- '<｜User｜>' ~ m.content }}{% else %}{{ '<｜Assistant｜>' ~ m.content ~ eos_token }}{% endif %}{% endfor %}"
    "{%- if add_generation_prompt %}{{ '<｜Assistant｜>' }}{% endif %}",
    "gpt_oss": _SYSTEM + "{{- '<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\\n"
    "Knowledge cutoff: 2024-06\\n\\nReasoning: medium\\n\\n# Valid channels: analysis, commentary, final. "
    "Channel must be included for every message.<|end|>' }}"
    "{%- if system %}{{ '<|start|>developer<|message|># Instructions\\n\\n' ~ system ~ '<|end|>' }}{% endif %}"
    "{%- for m in turns %}{{ '<|start|>' ~ m.role ~ ('<|channel|>final' if m.role == 'assistant' else '') }}"
    "{{- '<|message|>' ~ m.content ~ ('<|return|>' if m.role == 'assistant' and loop.last else '<|end|>') }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}",
}
_NAMED: Final = {
    "llama3": {"bos_token": "<|begin_of_text|>"},
    **{name: {"bos_token": "<s>", "eos_token": "</s>"} for name in ("llama2", "mistral", "mistral_tekken")},
    "gemma": {"bos_token": "<bos>"},
    "phi3": {"eos_token": "<|endoftext|>"},
    "olmo": {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"},
    "deepseek": {"bos_token": "<｜begin▁of▁sentence｜>", "eos_token": "<｜end▁of▁sentence｜>"},
}
FAMILIES: Final = {
    name: ChatTemplate(
        ("{%- set reasons = true %}" if name == "qwen" else "") + _GUARD + text,
        f"template={name}",
        tuple(sorted(_NAMED.get(name, {}).items())),
    )
    for name, text in _TEXTS.items()
}
"""By the names of :mod:`pairmill.formats.templates`. The others there are of models without a chat form."""


def load(
    given: str, place: str, read: Callable[[str], bytes], variables: Mapping[str, Any] | None = None
) -> ChatTemplate:
    """Return the template of a family, or as :func:`pairmill.chats.template.load`.

    Raises:
        UsageError: no such family or file, or not a template that can be used.
    """
    if given in FAMILIES:
        template.refuse_reserved(variables or {}, place)
        return replace(FAMILIES[given], place=place, variables=dict(variables or {}))
    if not template.is_one(given):
        hint = did_you_mean(given, FAMILIES)
        expected = f"{', '.join(FAMILIES)}, {template.EXPECTED}"
        raise UsageError("not a template", where=place, got=repr(given), expected=expected, hint=hint)
    return template.load(given, place, read, variables)
