"""What a policy means for the results of a line: files, rows, bytes and tokens by decision; what a change would do."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.engine.policing import Subject
from pairmill.engine.source_names import source_of
from pairmill.errors import InputError
from pairmill.formats.results.sample import SampleResult
from pairmill.formats.source_facts import ORDER
from pairmill.lineage.steps import Step, above, finished
from pairmill.mixture.reading import load_mixture
from pairmill.policy.enforce import Enforcer, raw_files
from pairmill.policy.policy import Policy, Verdict
from pairmill.report.model import Cell, Percent, Table

_NONE = "–"


@dataclass(frozen=True)
class Item:
    """Something that a policy decides on, and how much it is.

    Args:
        stage: whose result it is in; ``raw`` for raw files.
        subject: for the policy.
        rows, size, tokens: how many, in rows, bytes and tokens; of a sample and a mixture the means of an epoch, of a
            mixture tokens of responses; 0 = not known.
    """

    stage: str
    subject: Subject
    rows: float = 0
    size: int = 0
    tokens: float = 0


def items_of_root(root: str) -> list[Item]:
    """Return raw files and tasks of the line below a root that ends last: in its sample, or its tokenized folder.

    Raises:
        InputError: there is nothing, or it is not known which line is meant.
    """
    items = [Item("raw", subject, size=file.size) for subject, file in raw_files(root)]
    for stage in reversed(ORDER):
        steps = [*finished(root, stage)]
        if len(steps) > 1:
            raise InputError(
                f"which result of {stage} is meant is not known",
                where=storage.join(root, stage),
                got=", ".join(step.manifest.fingerprint for step in steps[:5]),
                expected="one",
                hint="name its folder with tokenized_path= or plan=",
            )
        if steps:
            line = above(root, steps[0])
            line += [step for step in finished(root, "mix") if _tokenized(step) in {_tokenized(each) for each in line}]
            return items + [item for step in line for item in _items_of(root, step)]
    if not items:
        raise InputError("nothing is finished", where=root, expected="results of fetch, clean, tokenize or sample")
    return items


def items_of_folder(uri: str) -> list[Item]:
    """Return the tasks of a finished folder of clean, curate, select, tokenize, mix or sample.

    Raises:
        InputError: it is not one.
    """
    manifest = manifests.read(uri)
    if manifest is None or manifest.stage not in (*ORDER, "mix"):
        raise InputError("not a finished folder", where=uri, expected=f"one of {', '.join(ORDER)} or mix")
    return [*_items_of(storage.parent_of(storage.parent_of(uri)), Step(manifest.stage, manifest))]


def _tokenized(step: Step) -> str:
    """Return the fingerprint of the tokenized folder that a step is, or was made of; empty before there is one."""
    refs = (ref.fingerprint for ref in step.manifest.inputs if ref.role == "tokenized")
    return step.manifest.fingerprint if step.stage == "tokenize" else next(refs, "")


def _items_of(root: str, step: Step) -> Iterator[Item]:
    manifest, place = step.manifest, storage.join(root, step.stage, step.manifest.fingerprint)
    if step.stage == "mix":
        mixture, place = load_mixture(place), storage.join(root, "tokenize", _tokenized(step))
        for key, wanted in mixture.wants().items():
            rows, planned = sum(wanted) / mixture.epochs, mixture.tasks[key]
            subject = Subject.from_task(planned.task, (), place)
            yield Item(step.stage, subject, rows, 0, rows * planned.response_tokens / max(1, planned.rows))
        return
    if step.stage == "sample":
        place, epochs = storage.join(root, "tokenize", _tokenized(step)), manifest.ledger.measures["epochs"]
        result = SampleResult.from_manifest(manifest)
        for name, stats in result.stats.items():
            tokens = (stats["cov_itoks"] + stats["cov_rtoks"]) / epochs
            licence = result.facts.get(source_of(name), {}).get("licence", "")
            subject = Subject.from_task(name, (), place)._replace(licence=licence)
            yield Item(step.stage, subject, stats["cov_rows"] / epochs, 0, tokens)
        return
    for task, files in manifest.tasks().items():
        ledger = step.ledgers.get(task)
        tokens = ledger.measures.get("tokens", 0) if ledger is not None else 0
        digests = [file.digest for file in files] if step.stage != "tokenize" else []
        subject = Subject.from_task(task, digests, place)
        yield Item(step.stage, subject, step.rows.get(task, 0), sum(file.size for file in files), tokens)


def tables_of(items: Sequence[Item], policy: Policy, other: Policy | None, root: str) -> list[Table]:
    """Return how much each decision is on, which clauses decide nothing, and what another policy would change."""
    verdicts = _verdicts(items, policy, root)
    tables = [_sums(items, verdicts), _clauses(policy, verdicts)]
    return [*tables, _changes(items, verdicts, _verdicts(items, other, root))] if other is not None else tables


def _verdicts(items: Sequence[Item], policy: Policy, root: str) -> list[Verdict]:
    enforcer = Enforcer(policy, root=root)
    return [enforcer.judge(item.subject) for item in items]


def _sums(items: Sequence[Item], verdicts: Sequence[Verdict]) -> Table:
    sums: dict[tuple[str, str, str], list[float]] = {}
    whole: dict[str, list[float]] = {}
    for item, verdict in zip(items, verdicts, strict=True):
        _add(item, sums.setdefault((item.stage, verdict.decision, verdict.reason), [0] * 4))
        _add(item, whole.setdefault(item.stage, [0] * 4))
    rows: list[list[Cell]] = []
    for (stage, decision, reason), counts in sums.items():
        # Of the most telling count that there is.
        at = next(number for number in (3, 1, 2, 0) if whole[stage][number])
        rows.append([stage, decision, reason, *map(_count, counts), Percent.ratio(counts[at], whole[stage][at])])
    note = (
        "Of a sample and a mixture rows and tokens are those of an epoch, as a mean; of a mixture tokens are of "
        "responses. The share is of tokens, else of rows or bytes."
    )
    header = ("Stage", "Decision", "Reason", "Files or tasks", "Rows", "Bytes", "Tokens", "Share")
    return Table("Decisions", header, rows, note)


def _add(item: Item, line: list[float]) -> None:
    for at, count in enumerate((1, item.rows, item.size, item.tokens)):
        line[at] += count


def _count(value: float) -> Cell:
    return round(value) if value else _NONE


def _clauses(policy: Policy, verdicts: Sequence[Verdict]) -> Table:
    decided = {verdict.where for verdict in verdicts}
    rows = [
        (number + 1, selector.label or ", ".join(clause.contents), clause.decision)
        for number, (selector, clause) in enumerate(policy.clauses)
        if policy.place_of(number) not in decided
    ]
    note = "They match nothing here, or an earlier clause decides on all that they match."
    return Table("Clauses that decide nothing", ("Clause", "For", "Decision"), rows, note)


def _changes(items: Sequence[Item], verdicts: Sequence[Verdict], others: Sequence[Verdict]) -> Table:
    changes: dict[tuple[str, str, str, str], list[float]] = {}
    for item, verdict, other in zip(items, verdicts, others, strict=True):
        if verdict.decision != other.decision:
            key = (item.stage, item.subject.source, verdict.decision, f"{other.decision} ({other.reason})")
            _add(item, changes.setdefault(key, [0] * 4))
    rows = [[*key, *map(_count, counts)] for key, counts in sorted(changes.items())]
    header = ("Stage", "Source", "Now", "Then", "Files or tasks", "Rows", "Bytes", "Tokens")
    return Table("What compare= would change", header, rows)
