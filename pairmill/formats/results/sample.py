"""What sample promises."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pairmill.engine.manifest import Manifest
from pairmill.engine.results import Result, empty, left_out
from pairmill.formats.results import ByName, Rows


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TokenizerResult(Result):
    """The digest of the tokenizer of a sampled folder; empty = not known."""

    tokenizer: str = left_out("")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SampleResult(TokenizerResult):
    """What was drawn.

    Attributes:
        layout: of the arrays.
        analytics: the report's text.
        stats: ``analytics.Stats`` of each task.
        lengths, cuts: histograms of rows.
        sources: name and rows of each task, in the order of the plan, and what tells its content; in a plan that
            extends another a task that more rows are taken of comes again, and ``tokens`` are those of these rows.
        parent: of a plan that extends another: ``plan``, its fingerprint; ``epochs`` that it has; ``from_epoch``, the
            first that is not its own; ``parts``, the entries of ``sources`` by file of tokens; ``earlier``, what
            held before some epochs: rules that differ from ``rules``, and ``removed``; ``drawn``, rows and tokens of
            each task in all epochs of the parent, if none is drawn anew; ``chain``, the plans before it, oldest first
            (:func:`pairmill.formats.sample_plan.ancestors`).
        base: of a plan that adds tasks to another: ``epochs``, the rows that each has in that, and ``parts``, how many
            tasks the plan has that others were added to, and how many each added.
        rules: the rule of each task, and in ``prefixes`` what the file's rule says of names: a prefix, or globs.
        group_of_task: the groups of tasks whose rules have one.
        idle_rules: rules without a task, as in ``prefixes``; hidden_rules: those of them that match tasks, each with
            the rule before it that takes them.
        tokenizer_info: as text, in the order of the file.
        mixture: what was drawn of a mixture, with the tasks of its sources.
        sample: the files of the arrays, once they were digested.
        after: of a plan that goes on after another: ``plan``, its ``fingerprints`` on a node by layout, ``epochs`` and
            ``rows`` of the next one that a model read of it; ``tasks`` that both have, ``seen``, rows of these that it
            saw, and ``left_out``, those of them that passes_total leaves out.
        composed: ``plan``, ``epoch`` and ``rows`` of each epoch that the plan is put together of.
        unmatched: tasks without a rule, where there are rules; two_rules: pairs of rules, and the tasks that both
            match.
        examples: by task and ledger reason, the numbers of two rows from 1.
        groups: where rules have amounts of groups, :class:`pairmill.rules.solve_rules.GroupResult` of each that has
            tasks, with the rows and tokens that were drawn in an epoch, on average; ``expected`` is rows, tokens and
            the standard error of these of each task, and ``scale`` :class:`pairmill.rules.solve.Scaled`.
        identified_by: what tokens of folders without a manifest were told by; empty = all their bytes, or a manifest.
        policy: what the policy in force decided (:mod:`pairmill.engine.policing`); ``removed`` are the rows that it
            takes out one by one, by task, as ordinals.
        facts: origin, revision, licence, language and published rows by source, as far as manifests of its line say it.
        rows: the first of the first epoch, as text (:mod:`pairmill.formats.report_rows`).
    """

    layout: Any
    stats: Mapping[str, Mapping[str, int]]
    sources: Rows
    analytics: str = ""
    lengths: list[int] = field(default_factory=list)
    cuts: list[int] = field(default_factory=list)
    rules: Mapping[str, dict[str, Any]] = empty()
    prefixes: Mapping[str, str | None] = empty()
    idle_rules: Sequence[str] = ()
    group_of_task: Mapping[str, str] = left_out({})
    hidden_rules: Mapping[str, str] = left_out({})
    tokenizer_info: str = "{}"
    mixture: ByName = left_out({})
    sample: Rows = left_out(())
    base: ByName = left_out({})
    parent: ByName = left_out({})
    after: ByName = left_out({})
    composed: Rows = left_out(())
    unmatched: Sequence[str] = left_out(())
    two_rules: Sequence[tuple[str, str, list[str]]] = left_out(())
    examples: Mapping[str, Mapping[str, list[int]]] = left_out({})
    groups: Rows = left_out(())
    expected: Mapping[str, Sequence[float]] = left_out({})
    scale: ByName = left_out({})
    identified_by: str = left_out("")
    policy: ByName = left_out({})
    removed: Mapping[str, Sequence[int]] = left_out({})
    facts: Mapping[str, ByName] = left_out({})
    rows: Rows = left_out(())

    @property
    def source_of_task(self) -> dict[str, str]:
        """Return the source of the mixture that each task is of."""
        sources = self.mixture.get("sources", {})
        return {task: source for source, tasks in sources.items() for task in tasks}

    @property
    def parts(self) -> list[int]:
        """Return how many entries of ``sources`` each file of tokens has, where tokens are copied."""
        return [*({**self.base, **self.parent}.get("parts") or [len(self.sources)])]

    def sizes(self) -> Iterator[tuple[str, int]]:
        """Yield each task, and how many tokens of the arrays are its own, in their order; it may come again."""
        seen = set[str]()
        for task in self.sources:
            # All tokens of a task, or those of the rows that are sampled, each once.
            if self.layout != "data_io":
                yield task["name"], int(task.get("tokens", self.stats[task["name"]]["unique_toks"]))
            elif task["name"] not in seen:
                yield task["name"], int(task["length"])
            seen.add(task["name"])


def tokenizer_digest(manifest: Manifest) -> str:
    """Return the digest of the tokenizer of a tokenized or a sampled folder; empty = the manifest does not say it."""
    refs = [ref.fingerprint for ref in manifest.inputs if ref.role == "tokenizer"]
    return refs[0] if refs else TokenizerResult.from_manifest(manifest).tokenizer
