"""The tokens around questions and answers, by family of tokenizers: ``template=llama3`` in place of four options.

Each name is a single token of the family's published tokenizer.json. A template takes what begins a sequence of the
family as BOQ, what ends a turn as EOQ, and what ends a text as EOA. The tags take tokens that the family reserves or
leaves unused. GPT-2 and the like have none: their tags get no token.

Facts are from public sources:

- Llama 3 and 3.1: the lists of special tokens in ``tokenizer.py`` of meta-llama/llama3, and in the conversion scripts
  of transformers. Both have the reserved tokens 0 to 3, under different ids.
- Qwen 2.5 and 3: ids 151643 to 151668 of their ``tokenizer_config.json``. Qwen 1.5 and 2 end at ``<|im_end|>``.
- GPT-2: ``encoder.json`` of openai/gpt-2. GPT-NeoX and Pythia: ``20B_tokenizer.json`` of EleutherAI/gpt-neox-20b.
- Llama 2, Mistral: ``tokenizer.json`` of Mistral-7B-v0.1 (three special tokens), -v0.3 (``[control_8]`` to
  ``[control_768]``), and the tables of Tekken in mistral-common (``<SPECIAL_20>`` and above).
- Gemma 1 to 3: ``<unused0>`` to ``<unused98>``, which are not special there. Gemma 4 has other marks of turns.
- Phi-3: ``PHI3_SPECIAL_TOKENS`` of pytorch/torchtune. Phi-4: ``<|dummy_0|>`` to ``<|dummy_87|>``.
- OLMo 2 and 3: ``DESIRED_MAPPING`` of the script of allenai that made the tokenizer ``dolma2``.
- DeepSeek V3 and R1: ids 128000 to 128799 are ``<｜place▁holder▁no▁0｜>`` and the following.
- SmolLM and SmolLM2: the 17 special tokens of ``cosmo2-tokenizer``. gpt-oss: the table of openai/harmony.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from pairmill.errors import InputError, UsageError, did_you_mean

TAGS = ("direct", "cot", "noisy", "synth")
"""The condition tags of the sources that ship."""


@dataclass(frozen=True)
class Template:
    """The tokens of a family.

    Args:
        families: the tokenizers that have these tokens, for people.
        boq: token before a question; ``eoq`` and ``eoa`` are those after a question and an answer.
        conditions: token by condition tag; empty = the family has no spare token, and tags get none.
    """

    families: str
    boq: str
    eoq: str
    eoa: str
    conditions: dict[str, str] = field(default_factory=dict)

    @property
    def tokens(self) -> frozenset[str]:
        """All of them."""
        return frozenset((self.boq, self.eoq, self.eoa, *self.conditions.values()))


def _numbered(name: str, first: int = 0) -> dict[str, str]:
    return {tag: name.format(first + number) for number, tag in enumerate(TAGS)}


_OBJECTS = dict(
    zip(TAGS, ("<|object_ref_start|>", "<|object_ref_end|>", "<|quad_start|>", "<|quad_end|>"), strict=True)
)
_JUPYTER = dict(zip(TAGS, ("<jupyter_start>", "<jupyter_text>", "<jupyter_code>", "<jupyter_output>"), strict=True))
_HARMONY = dict(zip(TAGS, (f"<|reserved_{number}|>" for number in (200000, 200001, 200004, 200009)), strict=True))
_END = "<|endoftext|>"
_CHATML = ("<|im_start|>", "<|im_end|>", _END)

DEFAULT = "hrm"
TEMPLATES = {
    DEFAULT: Template("`train_tokenizer`, data_io, HRM-Text", "<|im_start|>", "<|im_end|>", "<|box_end|>", _OBJECTS),
    "llama3": Template(
        "Llama 3, 3.1, 3.2, 3.3",
        "<|begin_of_text|>",
        "<|eot_id|>",
        "<|end_of_text|>",
        _numbered("<|reserved_special_token_{}|>"),
    ),
    "qwen": Template("Qwen 2.5 and 3", *_CHATML, _OBJECTS),
    "chatml": Template("Qwen 1.5 and 2, others with ChatML's tokens alone", *_CHATML),
    "mistral": Template("Mistral 7B v0.3, Mixtral 8x22B", "<s>", "[/INST]", "</s>", _numbered("[control_{}]", 8)),
    "mistral_tekken": Template(
        "Mistral NeMo, Mistral Small 3", "<s>", "[/INST]", "</s>", _numbered("<SPECIAL_{}>", 20)
    ),
    "llama2": Template("Llama 2, TinyLlama, Mistral 7B v0.1, Mixtral 8x7B", "<s>", "</s>", "</s>"),
    "gemma": Template("Gemma 1, 2, 3", "<bos>", "<end_of_turn>", "<eos>", _numbered("<unused{}>")),
    "phi3": Template("Phi-3 and 3.5 mini", "<s>", "<|end|>", _END, _numbered("<|placeholder{}|>", 1)),
    "phi4": Template("Phi-4", *_CHATML, _numbered("<|dummy_{}|>")),
    "olmo": Template("OLMo 2 and 3", *_CHATML, _numbered("<|extra_id_{}|>", 1)),
    "smollm": Template("SmolLM and SmolLM2", *_CHATML, _JUPYTER),
    "deepseek": Template(
        "DeepSeek V3 and R1",
        "<｜begin▁of▁sentence｜>",
        "<｜Assistant｜>",
        "<｜end▁of▁sentence｜>",
        _numbered("<｜place▁holder▁no▁{}｜>"),
    ),
    "gpt_oss": Template("gpt-oss", "<|startoftext|>", "<|end|>", _END, _HARMONY),
    "gpt2": Template("GPT-2", _END, _END, _END),
    "neox": Template("GPT-NeoX, Pythia, OLMo 1", _END, _END, _END),
}
"""By name."""


ROWS = "rows"
"""In place of a name: pairs are rendered by the chat template of the rendered rows beside them."""


def is_path(name: str) -> bool:
    """Return whether what is given in place of a name is the path of a chat template, or of a folder with one."""
    return "/" in name or name.endswith((".jinja", ".jinja2", ".j2", ".json", ".txt"))


def template(name: str) -> Template:
    """Return the template of a name; of a chat template that has no name the default.

    Raises:
        UsageError: there is none.
    """
    if name == ROWS or is_path(name):
        return TEMPLATES[DEFAULT]
    if name not in TEMPLATES:
        raise UsageError(
            "not a known template",
            where="template",
            got=repr(name),
            expected=f"one of {', '.join(TEMPLATES)}, {ROWS}, or the path of a chat template",
            hint=did_you_mean(name, TEMPLATES, "or name the tokens with boq= eoq= eoa= conditions="),
        )
    return TEMPLATES[name]


def fitting(has: Callable[[str], bool]) -> list[str]:
    """Return the names of the templates whose tokens a tokenizer has: those with the most different tokens.

    Two templates with the same tokens count once.

    Args:
        has: whether the tokenizer has a token.
    """
    fit = {name: item for name, item in TEMPLATES.items() if all(map(has, item.tokens))}
    most = max((len(item.tokens) for item in fit.values()), default=0)
    unlike = {item.tokens: name for name, item in reversed(fit.items()) if len(item.tokens) == most}
    return list(reversed(unlike.values()))


def require_tokens(name: str, has: Callable[[str], bool], where: str) -> None:
    """Raise InputError if a tokenizer lacks a token of a template.

    Args:
        has: whether the tokenizer has a token.
        where: the tokenizer, for the message.
    """
    chosen = template(name)
    if name not in TEMPLATES:
        return
    named = (chosen.boq, chosen.eoq, chosen.eoa, *chosen.conditions.values())
    missing = [token for token in dict.fromkeys(named) if not has(token)]
    if missing:
        raise InputError(
            f"the tokenizer lacks tokens of template={name}",
            where=where,
            got=f"no {', '.join(missing)}",
            expected="tokens of its vocabulary",
            hint=name_fitting(has)
            or "train it with these special tokens, or encode rows with boq= eoq= eoa= conditions=",
        )


def name_fitting(has: Callable[[str], bool]) -> str:
    """Write the hint that names the templates whose tokens a tokenizer has; empty if there is none."""
    fit = fitting(has)
    return f"it has the tokens of {' or '.join(f'template={name}' for name in fit)}" if fit else ""


def table() -> str:
    """Return all templates as a Markdown table."""
    lines = ["| template | tokenizers | boq | eoq | eoa | tags |", "|---|---|---|---|---|---|"]
    for name, item in TEMPLATES.items():
        tags = list(item.conditions.values())
        cells = [f"`{name}`", item.families, f"`{item.boq}`", f"`{item.eoq}`", f"`{item.eoa}`"]
        cells.append(f"`{tags[0]}` … `{tags[-1]}`" if tags else "none")
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)
