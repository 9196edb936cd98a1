"""The card of what is published: README.md, with the front matter that the Hub reads, and LICENSES.md."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import Final

from pairmill import storage
from pairmill.policy.licences import UNKNOWN, normalise
from pairmill.publish.refuse import languages_of
from pairmill.publish.tree import KINDS, README, DataSet, Item, Tree, is_held_out

_STRICTNESS: Final = (
    (r"cc0|pddl|unlicense|public-domain|0bsd", "no condition"),
    (r"mit|apache|bsd|isc|cc-by-\d|odc-by|cdla-permissive|etalab|ogl", "attribution"),
    (r"cc-by-sa|gpl|odbl|cdla-sharing|mpl|eupl|gfdl", "share alike"),
    (r"cc-by-nd", "no derivatives"),
    (r".*(^|-)nc(-|$)", "no commercial use"),
)
"""Licences by what they ask for, the mildest first; what is in no line has terms of its own, and is the strictest."""
_OWN: Final = "its own terms"
_SIZES: Final = ((3, "1K"), (4, "10K"), (5, "100K"), (6, "1M"), (7, "10M"), (8, "100M"), (9, "1B"), (10, "10B"))
NOT_STATED: Final = "not stated"


def condition_of(licence: str) -> tuple[int, str]:
    """Return how strict a licence is, and what it asks for; of an expression with ``AND`` the strictest part."""
    parts = re.split(r"\s+and\s+|\s*[,;]\s*", licence.strip().lower())
    ranked = []
    for part in parts:
        name = normalise(part)
        matches = [(rank, text) for rank, (form, text) in enumerate(_STRICTNESS) if re.match(form, name)]
        is_known = name not in UNKNOWN
        ranked.append(matches[-1] if matches else (len(_STRICTNESS), _OWN if is_known else NOT_STATED))
    return max(ranked)


def strictest(sets: Iterable[DataSet]) -> DataSet | None:
    """Return the data set whose licence asks for most; None without one."""
    return max(sets, key=lambda item: (condition_of(item.licence)[0], item.name), default=None)


def describe(tree: Tree, repository: str, address: str) -> list[Item]:
    """Return the files that describe what is published.

    Args:
        tree: all of it.
        repository: its name on the Hub, or of its folder.
        address: that fetch reads.
    """
    body = [
        f"# {repository.rpartition('/')[2]}",
        _about(tree),
        "## Data sets\n\n" + _table(tree),
        "## Licences\n\n" + _licences(tree),
        "## How to load it\n\n" + _loading(tree, address),
        "## What became of the rows\n\n" + _ledger(tree),
        _citations(tree),
    ]
    text = f"---\n{_front(tree, repository)}\n---\n\n" + "\n\n".join(part for part in body if part) + "\n"
    return [Item.from_text(README, text), Item.from_text("LICENSES.md", _licence_list(tree))]


def cell(text: object) -> str:
    """Return a text as a cell of a table."""
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")


def _about(tree: Tree) -> str:
    total, unit = tree.total(tree.unit), tree.unit
    rows = f"{tree.total('rows'):,} rows" + (f", {total:,} tokens" if unit == "tokens" else "")
    return (
        f"{KINDS[tree.opened.kind].capitalize()} of pairmill's stage {tree.manifest.stage}, fingerprint "
        f"`{tree.manifest.fingerprint}`: {rows} of {len(tree.sets):,} data sets. `_MANIFEST.json` has the digest of "
        "each file, the options and the inputs."
    )


def _table(tree: Tree) -> str:
    unit, total = tree.unit, max(1, tree.total(tree.unit))
    head = ("data set", "origin", "revision", "licence", "language", "rows", *(["tokens"] if unit == "tokens" else []))
    lines = [f"| {' | '.join((*head, 'share'))} |", "|---" * 5 + "|---:" * (len(head) - 4) + "|"]
    for item in tree.sets:
        figures = [f"{item.rows:,}", *([f"{item.tokens:,}"] if unit == "tokens" else [])]
        told = [item.name, *(item.facts.get(name, "") for name in ("origin", "revision"))]
        told += [item.licence or NOT_STATED, ", ".join(languages_of(item.facts.get("language")))]
        share = f"{getattr(item, unit) / total:.3%}"
        lines.append(f"| {' | '.join([*map(cell, told), *figures, share])} |")
    figures = [f"{tree.total('rows'):,}", *([f"{tree.total('tokens'):,}"] if unit == "tokens" else [])]
    lines.append(f"| all | | | | | {' | '.join(figures)} | 100.000% |")
    return "\n".join(lines)


def _licences(tree: Tree) -> str:
    worst = strictest(tree.sets)
    if worst is None:
        return "No data set."
    _, what = condition_of(worst.licence)
    return (
        f"Each data set keeps its own licence; [LICENSES.md](LICENSES.md) lists them. The strictest is "
        f"**{cell(worst.licence or NOT_STATED)}** of {cell(worst.name)} ({what}): it"
        " binds everyone who uses all of it."
    )


def _licence_list(tree: Tree) -> str:
    lines = ["# Licences", "", "As the cards and descriptions of the sources state them.", ""]
    by_licence: dict[str, list[DataSet]] = {}
    for item in tree.sets:
        by_licence.setdefault(item.licence or NOT_STATED, []).append(item)
    for licence, sets in sorted(by_licence.items(), key=lambda pair: (-condition_of(pair[0])[0], pair[0])):
        asks = "" if licence == NOT_STATED else f"It asks for: {condition_of(licence)[1]}."
        lines += [f"## {licence}", *(["", asks] if asks else []), ""]
        for item in sorted(sets, key=lambda item: item.name):
            origin = item.facts.get("origin", "")
            lines.append(
                f"- {item.name}" + (f", from {origin} {item.facts.get('revision', '')}".rstrip() if origin else "")
            )
        lines.append("")
    return "\n".join(lines)


def _loading(tree: Tree, address: str) -> str:
    kind = tree.opened.kind
    option = {"rows": "rows", "tokenized": "tokenized"}.get(kind)
    lines = []
    if option and address.startswith("hf://"):
        lines += ["pairmill, locked to the commit that this has now:", ""]
        lines += [f"    pairmill fetch '{option}={address}' root=work", ""]
    elif option:
        lines += [f"pairmill: this folder is `{'rows' if kind == 'rows' else 'tokenized_path'}=`.", ""]
    if kind == "rows":
        lines += ["data_io: copy `data/` and `data_clustered/`, which are folders as it writes them.", ""]
    if kind == "tokenized":
        lines += ["data_io: its sampler takes the folder as `tokenized_path`.", ""]
    if kind == "sampled":
        lines += ["HRM-Text's trainer maps the folder; pairmill's loader: `Loader(RowPlan(\"<folder>\"), …)`.", ""]
    if kind == "plan":
        lines += ["A node with the tokenized folder carries it out: `pairmill sample plan=<folder> output_path=…`.", ""]
    repository = address.removeprefix("hf://datasets/")
    named = [item for item in tree.sets if item.paths]
    if kind == "exported":
        lines += ["datasets:", "", f'    datasets.load_dataset("{repository}")', ""]
    elif named:
        lines += ["datasets:", "", f'    datasets.load_dataset("{repository}", "{named[0].name}")', ""]
        ending = _ending(tree)
        others = [item.name for item in named if _ending_of(item) != ending]
        if others:
            lines += [f"Files of {', '.join(others[:10])} have another format: `data_files=` names them.", ""]
    return "\n".join(lines).rstrip()


def _ledger(tree: Tree) -> str:
    ledger = tree.manifest.ledger
    lines = ["| stage " + tree.manifest.stage + " | rows |", "|---|---:|", f"| read | {ledger.rows_in:,} |"]
    lines += [f"| dropped: {cell(reason)} | {count:,} |" for reason, count in sorted(ledger.dropped.items())]
    lines += [f"| kept | {ledger.rows_kept:,} |", f"| written | {ledger.rows_out:,} |"]
    inputs = ", ".join(f"{ref.role} `{ref.fingerprint}`" for ref in tree.manifest.inputs[:20])
    return "\n".join(lines) + (f"\n\nMade of: {inputs}." if inputs else "")


def _citations(tree: Tree) -> str:
    lines = [
        f"- {item.name}: {' '.join(str(text).split())}" for item in tree.sets if (text := item.facts.get("citation"))
    ]
    return "## Citations\n\n" + "\n".join(lines) if lines else ""


# Front matter


def _front(tree: Tree, repository: str) -> str:
    licences = sorted({normalise(item.licence) for item in tree.sets})
    is_one = len(licences) == 1 and licences[0] not in UNKNOWN
    values: dict[str, object] = {
        "pretty_name": repository.rpartition("/")[2],
        "license": licences[0] if is_one else "other",
    }
    if not is_one:
        values |= {"license_name": "several", "license_link": "LICENSES.md"}
    languages = sorted({tag for item in tree.sets for tag in languages_of(item.facts.get("language"))})
    if languages:
        values["language"] = languages
    values |= {"size_categories": [_size(tree.total("rows"))], "task_categories": ["text-generation"]}
    values["tags"] = ["pairmill", "croissant"]
    lines = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in values.items()]
    return "\n".join([*lines, *_configs(tree)])


def _size(rows: int) -> str:
    for (digits, name), (_, before) in zip(_SIZES, (("", "n"), *_SIZES), strict=False):
        if rows < 10**digits:
            return f"n<{name}" if before == "n" else f"{before}<n<{name}"
    return "n>1T" if rows >= 10**12 else "10B<n<100B"


def _ending_of(item: DataSet) -> str:
    return Counter(PurePosixPath(path).suffix for path in item.paths).most_common(1)[0][0]


def _ending(tree: Tree) -> str:
    """Return the ending of most data sets' files: ``datasets`` reads one format of a repository."""
    endings = Counter(_ending_of(item) for item in tree.sets if item.paths)
    return endings.most_common(1)[0][0] if endings else ""


def _configs(tree: Tree) -> Sequence[str]:
    if tree.opened.kind == "exported":
        return _exported_configs(tree)
    ending, lines = _ending(tree), list[str]()
    for item in sorted(tree.sets, key=lambda item: item.name):
        paths = [path for path in item.paths if path.endswith(ending)] if ending else []
        if paths:
            lines += [f"- config_name: {json.dumps(item.name)}", "  data_files:", "  - split: train", "    path:"]
            lines += [f"    - {json.dumps(path)}" for path in paths]
    return ["configs:", *lines] if lines else ["viewer: false"]


def _exported_configs(tree: Tree) -> Sequence[str]:
    """Return the subsets that the export's own README names, without splits that stay away."""
    uri = storage.join(tree.opened.uri, README)
    head = re.match(r"---\n(configs:\n.*?)\n---\n", storage.store_for(uri).read(uri).decode(), re.DOTALL)
    held = any(is_held_out(item.path) for item in tree.items)
    text = head[1] if head else "viewer: false"
    return [text if held else re.sub(r"  - split: held_out\n    path:\n(?:    - .*\n?)+", "", text).rstrip()]
