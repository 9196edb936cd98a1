"""A line for people who use a result that still has rows of removed records, as the policy of its project says."""

import importlib
import logging
from contextlib import suppress
from typing import Final

from pairmill import storage
from pairmill.engine.policing import KEY, REMOVALS
from pairmill.engine.source_names import source_of
from pairmill.errors import PairmillError
from pairmill.formats.opened import OpenResult
from pairmill.log import event
from pairmill.policy.removals import DEFAULT_POLICY

_POLICY: Final = "pairmill.policy.policy"
"""Takes a fifth of a second to import, and few projects have one."""


def warn_of_removed(result: OpenResult) -> None:
    """Log a line if a finished result has, or may have, rows that ``<root>/policy.yaml`` takes out."""
    place = storage.join(storage.parent_of(storage.parent_of(result.uri)), DEFAULT_POLICY)
    if not result.stage or not storage.store_for(place).exists(place):
        return
    policy = None
    with suppress(PairmillError):  # the stage that it is given to says what is wrong with it
        policy = importlib.import_module(_POLICY).Policy.load(place)
    manifest = result.manifest if policy is not None and policy.removals else None
    if policy is None or manifest is None:
        return
    digests = {file.task: file.digest for file in manifest.files if file.task and result.kind == "rows"}
    for item in policy.removals:
        tasks = [task for task in digests or result.tasks if source_of(task) in item.sources]
        known = bool(digests) and all(digests[task] in item.files for task in tasks)
        count = sum(len(item.files[digests[task]]) for task in tasks) if known else 1
        if tasks and count and item.name not in manifest.data.get(KEY, {}).get(REMOVALS, ()):
            told = f"rows of records that were removed on {item.date}, entry {item.name}"
            verb = "has" if known else "may have"
            event(f"{result.uri} {verb} {told}; make it again with policy={place}", level=logging.WARNING)
