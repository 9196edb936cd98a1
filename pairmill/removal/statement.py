"""A signed statement of what was taken out of what: results before and after, by digest (docs/removing.md)."""

import json
import shutil
import subprocess
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import pairmill
from pairmill import storage
from pairmill.engine.listing import list_results
from pairmill.engine.manifest import MANIFEST, read
from pairmill.engine.policing import REMOVED
from pairmill.errors import InputError, UsageError
from pairmill.policy.policy import Policy
from pairmill.removal.copies import Copy
from pairmill.removal.places import PLANS, ROWS, TOKENS, Holding, Places

_SHA256: Final = "0" * 64
"""Which kind of digest is asked for: one that Python's own library checks."""
NAMESPACE: Final = "pairmill"
"""Of signatures, so that none of another program passes for one."""


def write_statement(
    given: str, key: str, policy: Policy, entry: str, root: str, places: Places, copies: Sequence[Copy] = ()
) -> str:
    """Write a statement and its signature, ``<statement>.sig``; return a line that says so.

    Args:
        given: file or URI of the statement.
        key: private key of SSH.
        policy: that has the entry.
        places: where the records are now.
        copies: elsewhere that were looked into.

    Raises:
        UsageError: ssh-keygen or the key is missing, or the policy does not have the entry.
        InputError: a result that was made under the entry has rows of the records, or there is none yet.
    """
    removal = next((item for item in policy.removals if item.name == entry), None)
    if removal is None:
        hint = "apply=true first, with the same list"
        raise UsageError(
            "the policy does not take these records out", where=policy.where, expected=f"entry {entry}", hint=hint
        )
    for item in places.holdings:
        # A plan that extends another has the epochs that were read as they were.
        if item.obeys(entry) and all(each.epoch >= item.from_epoch for each in item.passes[-1:]):
            task, rows = next(iter(item.rows.items()))
            raise InputError(
                "a result that was made under the policy has rows of the records",
                where=item.uri,
                got=f"{item.count:,} rows, {task}:{rows[0]} first",
                hint="this is a defect of pairmill, please report it",
            )
    made = [*_made_under(root, removal.name)]
    if not any(item.stage == PLANS for item in made):
        raise InputError(
            "no plan was drawn since the records are taken out",
            where=root,
            expected=f"a plan that was drawn with policy={policy.where}",
            hint="run pairmill sample with it first",
        )
    tasks = {task for item in places.holdings for task in item.rows}
    before = [{**_facts(item, tasks), "rows": item.rows, "tokens": item.tokens} for item in places.holdings]
    after = [_facts(item, tasks) for item in made]
    content = {
        "statement": "these records are in no result that is listed under after, nor in an epoch from from_epoch on",
        "pairmill": pairmill.__version__,
        "entry": removal.name,
        **{name: getattr(removal, name) for name in ("reason", "why", "date", "evidence")},
        "records": [f"{file}:{place}" for file, place in removal.records],
        "raw": removal.raw,
        "before": before,
        "after": after,
        "copies": [asdict(item) for item in copies],
        "unsearched": [{"place": place, "why": why} for place, why in places.unsearched],
    }
    data = (json.dumps(content, ensure_ascii=False, indent=1, sort_keys=True) + "\n").encode()
    signature = _sign(data, key)
    uri = storage.normalise(given, "statement")
    store = storage.store_for(uri)
    store.delete(uri)  # so that no statement is there with a signature of another
    store.write(f"{uri}.sig", signature)
    store.write(uri, data)
    return f"{uri} says what was taken out of {len(before):,} results; {uri}.sig is its signature\n"


def _made_under(root: str, entry: str) -> Iterator[Holding]:
    """Yield the results that were made under an entry, in the order of the line; their rows are not named."""
    for stage in (*ROWS, TOKENS, PLANS):
        for item in reversed(list_results(root, [stage])):
            manifest = read(item.uri, refuse_begun=False)
            if manifest is not None and (result := Holding(stage, item.uri, manifest, {})).obeys(entry):
                yield result


def _facts(item: Holding, tasks: Collection[str]) -> dict[str, Any]:
    """Return what tells a result: the digest of its manifest, and those of the files of some tasks."""
    return {
        "result": f"{item.stage}/{storage.name_of(item.uri)}",
        "manifest": storage.store_for(item.uri).digest(storage.join(item.uri, MANIFEST), _SHA256),
        "files": {file.path: file.digest for file in item.manifest.files if file.task in tasks},
        "removed": item.manifest.ledger.dropped.get(REMOVED, 0),
        **({"from_epoch": item.from_epoch} if item.from_epoch else {}),
    }


def _sign(data: bytes, key: str) -> bytes:
    """Return the signature of ``ssh-keygen`` on some bytes."""
    program = shutil.which("ssh-keygen")
    if program is None:
        hint = "apt-get install openssh-client, or your system's package of OpenSSH"
        raise UsageError("ssh-keygen is not on this machine, and it signs the statement", where="key", hint=hint)
    if not Path(key).is_file():
        hint = f"ssh-keygen -t ed25519 -f {key} makes one"
        raise UsageError("the key does not exist", where="key", got=key, expected="a private key of SSH", hint=hint)
    command = [program, "-Y", "sign", "-q", "-f", key, "-n", NAMESPACE]
    done = subprocess.run(command, input=data, capture_output=True, check=False)
    if done.returncode or not done.stdout.startswith(b"-----BEGIN SSH SIGNATURE-----"):
        got = done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}"
        hint = "a key with a passphrase is taken from ssh-agent: give its .pub file"
        raise UsageError("ssh-keygen did not sign", where=f"key={key}", got=got, hint=hint)
    return done.stdout
