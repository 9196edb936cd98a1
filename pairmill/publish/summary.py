"""``TRAINING_DATA_SUMMARY.md``: the sections of the European Commission's template for the public summary of training
content (Article 53(1)(d) of Regulation (EU) 2024/1689), with what manifests say filled in.

What only the provider of a model knows is marked. The headings are those of the template of July 2025.
"""

from typing import Final

from pairmill.publish.card import NOT_STATED, cell
from pairmill.publish.refuse import languages_of
from pairmill.publish.tree import DataSet, Item, Tree

NAME: Final = "TRAINING_DATA_SUMMARY.md"
_YOURS: Final = "*To be filled in by the provider of the model.*"
_PUBLIC: Final = ("hub:", "hub rows:", "https://", "http://", "git+")
_SHOWN: Final = 500


def summary(tree: Tree) -> Item:
    """Return the summary as far as it follows from the data."""
    public = [item for item in tree.sets if str(item.facts.get("origin", "")).startswith(_PUBLIC)]
    others = [item for item in tree.sets if item not in public]
    languages = sorted({tag for item in tree.sets for tag in languages_of(item.facts.get("language"))})
    size = f"{tree.total('rows'):,} rows" + (f", {tree.total('tokens'):,} tokens" if tree.unit == "tokens" else "")
    dropped = [f"{count:,} rows: {reason}" for reason, count in sorted(tree.manifest.ledger.dropped.items())]
    parts = [
        ("# Public summary of training content", f"Of the data with fingerprint `{tree.manifest.fingerprint}`."),
        ("## 1. General information", ""),
        ("### 1.1 Provider identification", _YOURS),
        ("### 1.2 Model identification", _YOURS),
        (
            "### 1.3 Modalities, overall training data size and other characteristics",
            f"- Modality: text.\n- Size: {size}.\n- Languages: {', '.join(languages) or NOT_STATED}.\n"
            f"- Latest date of acquisition: {_YOURS}",
        ),
        ("## 2. List of data sources", ""),
        ("### 2.1 Publicly available datasets", _table(public)),
        ("### 2.2 Private non-publicly available datasets obtained from third parties", _table(others) or "None."),
        ("### 2.3 Data crawled and scraped from online sources", f"None by pairmill. {_YOURS}"),
        ("### 2.4 User data", _YOURS),
        ("### 2.5 Synthetic data", _YOURS),
        ("### 2.6 Other sources of data", _YOURS),
        ("## 3. Data processing aspects", ""),
        (
            "### 3.1 Respect of reservation of rights from text and data mining exception or limitation",
            f"The licence of each data set is in LICENSES.md. {_YOURS}",
        ),
        ("### 3.2 Removal of illegal content", _YOURS),
        ("### 3.3 Other information", "\n".join(f"- {line}" for line in dropped) or "No row was dropped."),
    ]
    return Item.from_text(NAME, "\n\n".join(text for pair in parts for text in pair if text) + "\n")


def _table(sets: list[DataSet]) -> str:
    if not sets:
        return ""
    lines = ["| data set | origin | revision | licence | rows | tokens |", "|---|---|---|---|---:|---:|"]
    for item in sets[:_SHOWN]:
        told = (item.name, item.facts.get("origin", ""), item.facts.get("revision", ""), item.licence or NOT_STATED)
        lines.append(f"| {' | '.join(map(cell, told))} | {item.rows:,} | {f'{item.tokens:,}' if item.tokens else ''} |")
    more = len(sets) - _SHOWN
    return "\n".join(lines) + (f"\n\nAnd {more:,} more, listed in README.md." if more > 0 else "")
