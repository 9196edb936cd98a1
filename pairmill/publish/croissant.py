"""``croissant.json``: what is published in the words of Croissant 1.0 (http://mlcommons.org/croissant/1.0)."""

import json
from typing import Any, Final

from pairmill.policy.licences import UNKNOWN, normalise
from pairmill.publish.card import NOT_STATED
from pairmill.publish.refuse import languages_of
from pairmill.publish.tree import Item, Tree

NAME: Final = "croissant.json"
_CONTEXT: Final[dict[str, Any]] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataBiases": "cr:dataBiases",
    "dataCollection": "cr:dataCollection",
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "personalSensitiveInformation": "cr:personalSensitiveInformation",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
"""The terms of the specification's own context."""
_FIELDS: Final = ("condition", "instruction", "response")
_FORMATS: Final = {".parquet": "application/x-parquet", ".jsonl": "application/jsonlines"}
_FILES: Final = 1_000
"""Files that are named with their digests; of more, the manifest has them."""


def croissant(tree: Tree, repository: str, url: str) -> Item:
    """Return the description.

    Args:
        tree: what is published.
        repository: name of it.
        url: of its page, or its address.
    """
    home = {
        "@type": "cr:FileObject",
        "@id": "repository",
        "name": "repository",
        "contentUrl": url,
        "encodingFormat": "git+https",
        "sha256": "main",
    }
    named = [item for item in tree.items if item.path.endswith(tuple(_FORMATS)) and _is_data(item, tree)]
    distribution: list[dict[str, Any]] = [home]
    for item in named if len(named) <= _FILES else ():
        ending = item.path[item.path.rindex(".") :]
        distribution.append(
            {
                "@type": "cr:FileObject",
                "@id": item.path,
                "name": item.path,
                "containedIn": {"@id": "repository"},
                "contentUrl": item.path,
                "contentSize": f"{item.size} B",
                "encodingFormat": _FORMATS[ending],
                "sha256": tree.sums[item.path].sha256,
            }
        )
    records = [_records(name, path) for name, path in _by_set(tree) if len(named) <= _FILES]
    licences = sorted({item.licence or NOT_STATED for item in tree.sets})
    only = licences[0] if len(licences) == 1 else ""
    citations = [str(item.facts["citation"]) for item in tree.sets if item.facts.get("citation")]
    languages = sorted({tag for item in tree.sets for tag in languages_of(item.facts.get("language"))})
    values: dict[str, Any] = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "name": repository.rpartition("/")[2],
        "description": f"{tree.total('rows'):,} rows of {', '.join(item.name for item in tree.sets[:20])}.",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "url": url,
        "version": "1.0.0",
        "license": f"https://spdx.org/licenses/{only}.html" if normalise(only) not in UNKNOWN else ", ".join(licences),
        "citeAs": "\n".join(citations),
        "distribution": distribution,
        "rai": "http://mlcommons.org/croissant/RAI/",
        "recordSet": records,
    }
    if languages:
        values["inLanguage"] = languages
    kept = {name: value for name, value in values.items() if value not in ("", [])}
    return Item.from_text(NAME, json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


def _is_data(item: Item, tree: Tree) -> bool:
    return tree.opened.kind == "exported" or any(item.path in entry.paths for entry in tree.sets)


def _by_set(tree: Tree) -> list[tuple[str, str]]:
    return [(entry.name, path) for entry in tree.sets for path in entry.paths]


def _records(name: str, path: str) -> dict[str, Any]:
    is_table = path.endswith(".parquet")
    key = f"{name}/{path}"
    fields = [
        {
            "@type": "cr:Field",
            "@id": f"{key}/{field}",
            "name": field,
            "dataType": "sc:Text",
            "source": {
                "fileObject": {"@id": path},
                "extract": {"column": field} if is_table else {"jsonPath": f"$.{field}"},
            },
        }
        for field in _FIELDS
    ]
    return {"@type": "cr:RecordSet", "@id": key, "name": key, "field": fields}
