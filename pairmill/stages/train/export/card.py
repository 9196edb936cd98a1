"""The card of an exported model: README.md."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pairmill.nets.cost import parameters
from pairmill.nets.shape import calls, stacks
from pairmill.nets.trained import Trained
from pairmill.stages.train.export.provenance import Provenance

_RESULTS: Final = {
    "loss": "Training loss, last interval",
    "heldout_loss": "Held-out loss, weights of the last step",
    "heldout_ema_loss": "Held-out loss, average of the weights",
    "perplexity": "Training perplexity",
    "accuracy": "Training accuracy, teacher-forced",
    "tokens": "Tokens read",
    "labels": "Tokens learned from",
}
"""The results that the card shows first, by name."""


def card(
    trained: Trained,
    config: dict[str, Any],
    origin: Provenance,
    inputs: Mapping[str, str],
    *,
    weights: str,
    reason: str,
    dtype: str,
    fingerprint: str,
) -> str:
    """Write the card, Markdown.

    Args:
        trained: what the run says.
        config: config.json of the exported folder.
        origin: of the data.
        inputs: of the run, by role: fingerprints of sampled folders, of what it began with.
        weights: ema or current.
        reason: why these.
        dtype: of the exported weights.
        fingerprint: of the run; empty = not known.
    """
    parts = [
        _head(),
        f"# {trained.net.net}, {parameters(trained.net, trained.vocab_size):,} parameters",
        f"Trained with pairmill{f', run {fingerprint}' if fingerprint else ''}. transformers loads it by its own class "
        f"`{config['architectures'][0]}`{_since(config)}, without code of others.",
        _use(config, trained),
        _net(trained, config),
        _training(trained, weights, reason, dtype),
        _data(trained, origin, inputs),
    ]
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def _head() -> str:
    values = {"library_name": "transformers", "pipeline_tag": "text-generation", "tags": ["pairmill"]}
    return "\n".join(["---", *(f"{name}: {json.dumps(value)}" for name, value in values.items()), "---"])


def _since(config: dict[str, Any]) -> str:
    return " (since 5.9)" if config["model_type"] == "hrm_text" else ""


def _use(config: dict[str, Any], trained: Trained) -> str:
    tags = sorted(trained.tokenizer_info.get("condition_mapping", {}))
    tag = f', ["{tags[0]}"]' if tags else ""
    lines = [
        "## Use",
        "",
        "```python",
        "from transformers import AutoModelForCausalLM, AutoTokenizer",
        "from example import answer  # example.py of this folder",
        "",
        'tokenizer, model = AutoTokenizer.from_pretrained("."), AutoModelForCausalLM.from_pretrained(".")',
        f'print(answer(model, tokenizer, "What is 3 + 4?"{tag}))',
        "```",
        "",
    ]
    if "eoa" in trained.tokenizer_info:
        info = trained.tokenizer_info
        between = " the tokens of its tags," if tags else ""
        lines.append(
            f"- A prompt is `{info['boq']}`,{between} the text without spaces at its ends, `{info['eoq']}`. An answer "
            f"ends with `{info['eoa']}`."
        )
    if tags:
        lines.append(f"- Tags, of which a prompt has none, one or several: {', '.join(f'`{tag}`' for tag in tags)}.")
    if config.get("prefix_lm"):
        lines.append(
            "- **Set `token_type_ids` to 1 for the whole prompt**, as `encode` in example.py does. The tokenizer does "
            "not return them. Without them each token of the prompt sees only those before it: the logits are others "
            "and the answers worse, and nothing fails."
        )
    lines.append(
        "- For training, give transformers `labels` equal to `input_ids`, with -100 where nothing is to be learned "
        "(the prompt). The class shifts them itself. The batches of pairmill and of HRM-Text are shifted already, so "
        "their labels must be shifted back: otherwise the model learns the token after the next."
    )
    if config["model_type"] == "hrm_text":
        lines.append(
            "- Which recurrent calls are differentiated differs in transformers (`L_bp_cycles`), so fine-tuning there "
            "is not the same as in pairmill."
        )
    return "\n".join(lines)


def _net(trained: Trained, config: dict[str, Any]) -> str:
    model, many = trained.net, calls(trained.net)
    rows: list[tuple[str, Any]] = [("parameters", f"{parameters(model, trained.vocab_size):,}")]
    for letter, stack in stacks(model).items():
        size = f"{stack.layers} blocks, {stack.heads} heads of {stack.head_width}, MLP {stack.feed} wide"
        shared = f", {stack.key_value_heads} for keys and values" if stack.key_value_heads != stack.heads else ""
        rows.append((f"stack {letter}", f"{size}{shared}; calls in a pass: {many[letter]}"))
    rows += [("width", model.width), ("attention", model.attention), ("initial weights", model.init)]
    rows += [("vocabulary, padded", f"{trained.vocab_size:,}"), ("positions", f"{trained.positions:,}")]
    note = "`num_hidden_layers` in config.json is the number of blocks of one stack."
    if model.net == "transformer":
        note += " The class has a second stack, which this net does not have: nothing calls it, and its weights are 0."
    if model.net.startswith("trm"):
        note += " This net has one stack, which is there twice, as H and as L."
    return "\n".join(["## Net", "", _table(("what", "value"), rows), "", note if "H_cycles" in config else ""])


def _training(trained: Trained, weights: str, reason: str, dtype: str) -> str:
    chosen = "the average of the weights (EMA)" if weights == "ema" else "the weights of the last step"
    lines = ["## Training", "", f"{trained.steps:,} steps. This folder has {chosen} as {dtype} ({reason})."]
    rows = [
        (settings, _number(trained.results[name])) for name, settings in _RESULTS.items() if name in trained.results
    ]
    if rows:
        lines += ["", _table(("result", "value"), rows)]
    held_out = "heldout_ema_loss/" if weights == "ema" else "heldout_loss/"
    known = [name.partition("/")[2] for name in trained.results if name.startswith(("loss/", held_out))]
    of_sources = [
        (name, *(_number(trained.results.get(f"{kind}{name}", "")) for kind in ("loss/", held_out)))
        for name in sorted(set(known))
    ]
    if of_sources:
        lines += ["", _table(("loss by source", "in training", "held out"), of_sources)]
    if trained.settings:
        settings = json.dumps(trained.settings, indent=1, ensure_ascii=False)
        lines += ["", "<details><summary>All settings</summary>", "", "```json", settings, "```", "", "</details>"]
    return "\n".join(lines)


def _data(trained: Trained, origin: Provenance, inputs: Mapping[str, str]) -> str:
    lines = ["## Data", ""]
    total = sum(origin.tokens.values())
    if total:
        rows = [
            (name, f"{origin.rows.get(name, 0):,}", f"{count:,}", f"{count / total:.2%}")
            for name, count in sorted(origin.tokens.items(), key=lambda item: (-item[1], item[0]))
        ]
        lines += [_table(("data set", "rows of all epochs", "response tokens", "share"), rows), ""]
    if origin.sources:
        sources = [(name, each.licence, each.revision, each.origin) for name, each in sorted(origin.sources.items())]
        lines += [_table(("made of", "licence", "revision", "published at"), sources), ""]
    else:
        lines += ["The manifests of the data were not found, so licences are not stated here.", ""]
    digests = [(name, digest) for name, digest in vars(trained.data).items() if digest]
    digests += [(f"input {role}", fingerprint) for role, fingerprint in inputs.items()]
    digests += [(stage, ", ".join(names)) for stage, names in origin.stages.items()]
    lines += [_table(("digest of", "value"), digests)] if digests else []
    return "\n".join(lines)


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    def line(cells: Iterable[object]) -> str:
        return "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    return "\n".join([line(head), line("---" for _ in head), *map(line, rows)])


def _number(value: object) -> str:
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer() and abs(value) > 100):
        return f"{int(value):,}"
    return f"{value:.4f}" if isinstance(value, float) else str(value)
