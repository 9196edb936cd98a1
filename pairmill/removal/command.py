"""``pairmill remove records=… root=…``: what would change if records were taken out; with ``apply=true`` they are."""

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.engine.options import option
from pairmill.engine.policing import enforced
from pairmill.errors import UsageError
from pairmill.fields import Checked
from pairmill.formats.records import RecordId
from pairmill.formats.settings_file import SettingsFile
from pairmill.interface import cli
from pairmill.lineage.batches import Batching
from pairmill.policy import removals
from pairmill.policy.policy import Policy
from pairmill.policy.removals import DEFAULT_POLICY, Removal
from pairmill.removal.copies import Copy, look_into
from pairmill.removal.places import PLANS, Holding, Places, search
from pairmill.removal.statement import write_statement
from pairmill.report.model import Cell, Table

_SHOWN: Final = 20
_NEW: Final = "# Written by pairmill remove. docs/policy.md says what else may be here.\nclauses: []\n"


@dataclass(kw_only=True)
class RemoveConfig(Checked):
    """Say what changes if records are taken out; apply=true writes it to the policy, which all later runs obey."""

    records: str = option(help="file with a record a line, as gsm8k/train.jsonl:17 (docs/trace.md); # begins a comment")
    root: str = option(help="project folder or URI, in whose results the records are looked for")
    policy: str = option("", help="policy.yaml to write to; empty = <root>/policy.yaml, which is made")
    apply: bool = option(False, help="write the policy; without this nothing is written")
    reason: Literal["gdpr", "robots", "licence", "quality", "eval", "agreement"] = option("gdpr", help="kind of reason")
    why: str = option("", help="the reason in a sentence; apply=true needs it")
    evidence: str = option("", help="where the reason can be looked up")
    copies: list[str] = option(
        [], help="arrays on nodes and published copies to look into too: folders, URIs or hf://<owner>/<name>"
    )
    batch_tokens: int = option(0, help="tokens of a rank's batch: the steps that saw the rows are shown", at_least=0)
    ranks: int = option(1, help="ranks of that training", at_least=1)
    statement: str = option("", help="write a signed statement to this file: what was taken out of what", needs="key")
    key: str = option("", help="private key of SSH that signs the statement: ssh-keygen -t ed25519 -f <key>")


def run(config: RemoveConfig) -> str:
    """Return what would change, or what was changed, as text.

    Raises:
        UsageError: the list or the policy is not valid.
        InputError: no source has one of the records.
    """
    root = storage.normalise(config.root, "root")
    records = read_list(config.records)
    place = storage.normalise(config.policy, "policy") if config.policy else storage.join(root, DEFAULT_POLICY)
    batching = Batching(batch_tokens=config.batch_tokens, ranks=config.ranks) if config.batch_tokens else None
    with enforced(None):
        places = search(root, records, batching)
        copies = [*look_into(config.copies, root, places)]
    entry = make_entry(config, root, records, places)
    if config.statement:
        return write_statement(
            config.statement, config.key, Policy.load(place), entry.name, root, places, copies=copies
        )
    text = "".join(_lines(entry, records, places, copies))
    if not config.apply:
        return f"{text}nothing is written; apply=true why='…' writes it to {place}\n"
    if not config.why:
        raise UsageError(
            "required with apply=true", where="why", hint="why='the author asked for it' goes into the policy"
        )
    write_entry(place, entry)
    return (
        f"{text}{place} takes out {len(records):,} records, as entry {entry.name}.\n"
        f"Next: give policy={place} to every run. A plan is drawn again by pairmill sample with the same options and "
        "this policy=; then pairmill remove … statement=<file> key=<key> says what was taken out.\n"
    )


def read_list(given: str) -> list[RecordId]:
    """Read a list of records, each once, in its order.

    Raises:
        UsageError: it does not exist, is empty, or has a line that is not a record.
    """
    uri = storage.normalise(given, "records")
    store = storage.store_for(uri)
    if not store.exists(uri):
        raise UsageError("the file does not exist", where=f"records={uri}", hint="write a record a line")
    lines = store.read(uri).decode(errors="replace").splitlines()
    numbered = [(number, line.partition("#")[0].strip()) for number, line in enumerate(lines, 1)]
    records = [RecordId.parse(text, f"{uri} line {number}") for number, text in numbered if text]
    if not records:
        raise UsageError(
            "the list has no record", where=f"records={uri}", expected="a line for each, as gsm8k/train.jsonl:17"
        )
    return list(dict.fromkeys(records))


def make_entry(config: RemoveConfig, root: str, records: Sequence[RecordId], places: Places) -> Removal:
    """Return the entry of a policy that takes the records out."""
    return Removal(
        records=tuple(sorted((record.file, record.member or record.line) for record in records)),
        reason=config.reason,
        why=config.why,
        date=str(datetime.date.today()),
        evidence=config.evidence,
        raw={record.file: _digest_of(root, record, places.about[record]) for record in sorted(records)},
        files=places.files,
    )


def _digest_of(root: str, record: RecordId, about: Mapping[str, str]) -> str:
    """Return the digest of the raw file of a record, which fetch brought; empty if it was given."""
    folder = storage.join(root, "raw", record.source)
    revision = str(about.get("revision", ""))
    if revision not in storage.store_for(folder).folders(folder):
        return ""
    manifest = manifests.read(storage.join(folder, revision), refuse_begun=False)
    digests = {file.path: file.digest for file in manifest.files} if manifest is not None else {}
    return digests.get(record.path, "")


def write_entry(place: str, entry: Removal) -> None:
    """Write an entry beside a policy, and let the policy name the file; each is written whole or not at all."""
    store = storage.store_for(place)
    text, file = _NEW, ""
    if store.exists(place):
        Policy.load(place)
        text, top = store.read(place).decode(), SettingsFile.load(place, "policy", "clauses").top
        file = str(top.entries()["removals"].plain()) if top is not None and "removals" in top.entries() else ""
    name = file or removals.NAME
    uri = storage.join(storage.parent_of(place), name)
    known = removals.load(uri) if store.exists(uri) else []
    before = next((item for item in known if item.name == entry.name), None)
    entry = before.with_files(entry.files) if before is not None else entry
    others = [item for item in known if item.name != entry.name]
    if not file:
        text = f"{text.rstrip()}\nremovals: {name}\n"
        try:
            SettingsFile(place, text.encode(), "clauses")
        except UsageError as error:
            hint = f"add removals: {name} at its top by hand, and run this again"
            raise UsageError("a line cannot be added to the policy", where=place, got=error.what, hint=hint) from error
    # First the entry: a policy never names a file that is not there.
    store.write(uri, removals.dump([*others, entry]))
    if not file:
        store.write(place, text.encode())


def _lines(entry: Removal, records: Sequence[RecordId], places: Places, copies: Sequence[Copy]) -> Iterator[str]:
    rows: list[Sequence[Cell]] = [
        (item.stage, storage.name_of(item.uri), ", ".join(sorted(item.rows)[:3]), item.count, item.tokens or "–")
        for item in places.holdings
    ]
    table = Table("Rows", ("Stage", "Result", "Tasks", "Rows", "Tokens"), rows)
    body = table.text() if rows else "  are in no result"
    yield f"{len(records):,} records, entry {entry.name}: their rows\n{body}\n"
    plans = [*places.of_stage(PLANS)]
    if plans:
        header = ("Plan", "Rows", "Passes", "By epoch", "First and last step")
        table = Table("Plans", header, [_plan_line(item) for item in plans])
        yield f"Plans that draw them\n{table.text()}\n"
    for item in plans:
        if item.seen:
            steps = [f"step {each.step} rank {each.rank} (epoch {each.epoch})" for each in item.seen if each.step]
            more = f" and {len(steps) - _SHOWN:,} more" if len(steps) > _SHOWN else ""
            yield f"{storage.name_of(item.uri)} had them in {', '.join(steps[:_SHOWN]) or 'no step'}{more}\n"
    for uri, why in places.unsearched:
        yield f"not looked into: {uri}: {why}\n"
    for copy in copies:
        todo = f"; {copy.todo}" if copy.todo else ""
        yield f"{copy.place} ({copy.result or 'made by another program'}): {copy.rows:,} of their rows{todo}\n"
    if plans and not copies:
        yield "Not looked into: arrays of these plans on nodes, and what was published or exported: copies=…\n"


def _plan_line(item: Holding) -> Sequence[Cell]:
    epochs: dict[int, int] = {}
    for each in item.passes:
        epochs[each.epoch] = epochs.get(each.epoch, 0) + 1
    steps = sorted(each.step for each in item.seen if each.step)
    by_epoch = ", ".join(f"{epoch}: {count}" for epoch, count in sorted(epochs.items())[:8])
    return (
        storage.name_of(item.uri),
        item.count,
        len(item.passes),
        by_epoch,
        f"{steps[0]:,} – {steps[-1]:,}" if steps else "–",
    )


main = partial(cli.run_command, "remove", cli.Command(RemoveConfig, run))
