"""The chat templates that rows are rendered by: what a manifest says of them, and what later stages make of it."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeAlias

from pairmill.engine.manifest import canonical

KEY = "chat_templates"
"""Of a manifest's data: {"templates": digest → template, "tasks": task → digest}; left out without a template."""

Templates: TypeAlias = Mapping[str, Mapping[str, Any]]
"""By task: text, tokens and variables of its template, and how its rows are encoded (boundary, long_rows). Without a
text its rows are pairs."""


def to_data(by_task: Templates) -> dict[str, Any]:
    """Return what a manifest's data has of templates."""
    if not by_task:
        return {}
    digests = {task: hashlib.sha256(canonical(template)).hexdigest()[:16] for task, template in sorted(by_task.items())}
    templates = {digest: dict(by_task[task]) for task, digest in digests.items()}
    return {KEY: {"templates": dict(sorted(templates.items())), "tasks": digests}}


def of_data(data: Mapping[str, Any], tasks: Collection[str]) -> dict[str, Mapping[str, Any]]:
    """Return the templates of those of ``tasks`` that have one, by task."""
    given = data.get(KEY, {"templates": {}, "tasks": {}})
    return {task: given["templates"][digest] for task, digest in given["tasks"].items() if task in tasks}


def joined(folders: Iterable[Templates]) -> dict[str, Mapping[str, Any]]:
    """Return those of several folders of rows, by task."""
    return dict(sorted((task, template) for folder in folders for task, template in folder.items()))
