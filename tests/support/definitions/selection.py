"""Selection as spec/curation.md 9 to 11 defines it, in plain and slow Python, written from that text alone.

A row is a mapping: task, ordinal (its number in the file that curate was given), instruction, response, and attributes
by name, None for null. Settings are a mapping as in select_config.yaml.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import xxhash

Row = Mapping[str, Any]
DATE_YEAR = 365.2425


@dataclass
class Result:
    """What is chosen.

    Args:
        taken: row ids of each ranking by its name, from the best key on.
        outside: row ids that dsir_then_filter took and removed.
        groups: of each group [its part of the budget by the rule alone, quota, taken], in the unit of the budget.
        weights: length-normalised log weight by target and row id.
        scores: of attributes and hybrid, by row id.
        kl: of each target.
        candidates: row ids.
    """

    taken: dict[str, list[str]] = field(default_factory=dict)
    outside: list[str] = field(default_factory=list)
    groups: dict[str, list[float]] = field(default_factory=dict)
    weights: dict[str, dict[str, float]] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    kl: dict[str, dict[str, float]] = field(default_factory=dict)
    candidates: list[str] = field(default_factory=list)

    @property
    def chosen(self) -> set[str]:
        """The row ids that stay."""
        return {item for some in self.taken.values() for item in some}


def row_id(row: Row) -> str:
    """Identity of a row."""
    return f"{row['task']}:{row['ordinal']}"


def draw(identity: str, seed: int, salt: str) -> float:
    """Section 0.5."""
    return ((xxhash.xxh3_64_intdigest(f"{salt}\t{identity}".encode(), seed) >> 11) + 0.5) * 2.0**-53


def gumbel(identity: str, seed: int, salt: str) -> float:
    """Section 9."""
    return -math.log(-math.log(draw(identity, seed, salt)))


def features(texts: Sequence[str], ngrams: int, buckets: int, kind: str) -> Counter[int]:
    """How often each bucket occurs."""
    result: Counter[int] = Counter()
    for text in texts:
        words = re.findall(r"\w+|[^\w\s]+", text.lower())
        for size in range(1, ngrams + 1):
            for at in range(len(words) - size + 1):
                data = " ".join(words[at : at + size]).encode()
                if kind == "sha256":
                    number = int(hashlib.sha256(data).hexdigest(), 16)
                else:
                    number = xxhash.xxh3_64_intdigest(data)
                result[number % buckets] += 1
    return result


def kl(p: Sequence[float], q: Sequence[float]) -> float:
    """The divergence of q from p; logarithms as those of weights, so that a bucket that q lacks is finite."""
    return math.fsum(a * (math.log(a + 1e-8) - math.log(b + 1e-8)) for a, b in zip(p, q, strict=True) if a > 0)


def allotted(weights: Mapping[str, float], budget: float, limits: Mapping[str, float]) -> dict[str, float]:
    """Section 12: who would get more than its limit gets its limit; the others share the rest by weight."""
    free = {name for name, weight in weights.items() if weight > 0 and limits[name] > 0}
    result = dict.fromkeys(weights, 0.0)
    rest = Fraction(budget)
    while True:
        whole = sum((Fraction(weights[name]) for name in free), Fraction(0))
        over = {name for name in free if rest * Fraction(weights[name]) / whole > Fraction(limits[name])}
        if not over:
            break
        for name in over:
            result[name] = float(limits[name])
            rest -= Fraction(limits[name])
        free -= over
    for name in free:
        result[name] = float(rest * Fraction(weights[name]) / whole)
    return result


def whole_numbers(values: Mapping[str, float], total: int) -> dict[str, int]:
    """Largest remainder, ties by name."""
    result = {name: math.floor(value) for name, value in values.items()}
    order = sorted(values, key=lambda name: (result[name] - values[name], name))
    for name in order[: total - sum(result.values())]:
        result[name] += 1
    return result


def age(date: Any, reference: Any) -> float:
    """Years from a date to the reference date."""
    seconds = (reference - date).total_seconds()
    return float(seconds / 86_400 / DATE_YEAR)


class Selection:
    """One selection.

    Args:
        rows: without held-out ones; in any order.
        settings: as in the file.
        targets: texts of each target's rows by name: (instruction, response).
        seed: of all draws.
        tokens: response tokens of a row, section 0.4.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        settings: Mapping[str, Any],
        targets: Mapping[str, Sequence[tuple[str, str]]] | None = None,
        seed: int = 0,
        tokens: Callable[[Row], int] = lambda row: 0,
    ) -> None:
        self.rows = sorted(rows, key=lambda row: (row["task"], row["ordinal"]))
        self.settings, self.targets, self.seed, self.tokens = settings, dict(targets or {}), seed, tokens
        self.dsir = settings.get("dsir", {})
        self.attributes = settings.get("attributes", {})
        self.method = settings["method"]

    def run(self) -> Result:
        """Choose."""
        made = Result()
        within = [
            row for row in self.rows if all(self.is_within(row, bound) for bound in self.attributes.get("where", []))
        ]
        pool = within if self.method in ("attributes", "hybrid", "filter_then_dsir") else self.rows
        made.candidates = [row_id(row) for row in pool]
        if self.method == "target_by_attribute":
            self.targets = {"attributes": [(row["instruction"], row["response"]) for row in within]}
        if self.method != "attributes":
            # Only filter_then_dsir refits on its pool.
            self.weigh(pool if self.method == "filter_then_dsir" else self.rows, made)
        if self.method in ("attributes", "hybrid"):
            rankings = [(self.method, 1.0, self.scored(pool, made))]
        else:
            rankings = self.drawn(pool, made)
        self.take(pool, rankings, made)
        if self.method == "dsir_then_filter":
            stay = {row_id(row) for row in within}
            for name, some in made.taken.items():
                made.outside += [item for item in some if item not in stay]
                made.taken[name] = [item for item in some if item in stay]
        if self.method != "attributes":
            self.compare(pool, made)
        return made

    # Section 10.

    def value(self, row: Row, name: str) -> Any:
        """An attribute; of a date its age."""
        if name == "row.condition":
            return row["condition"]
        result = row["attributes"].get(name)
        return age(result, self.settings["reference_date"]) if hasattr(result, "year") else result

    def is_within(self, row: Row, bound: Mapping[str, Any]) -> bool:
        """Whether a row is within a bound; null is not."""
        value = self.value(row, bound["attribute"])
        if value is None:
            return False
        if bound.get("min") is not None and value < bound["min"]:
            return False
        if bound.get("max") is not None and value > bound["max"]:
            return False
        return bound.get("in") is None or value in bound["in"]

    def group(self, row: Row) -> str:
        """The group of a row."""
        name = self.attributes.get("group_by")
        if not name or self.method not in ("attributes", "hybrid"):
            return ""
        value = self.value(row, name)
        if value is None:
            return ""
        edges = self.attributes.get("edges")
        if edges:
            for place, edge in enumerate(edges):
                if value < edge:
                    return f"below {edge:.12g}" if not place else f"{edges[place - 1]:.12g} to {edge:.12g}"
            return f"{edges[-1]:.12g} and above"
        return str(value).lower() if isinstance(value, bool) else str(value)

    def z(self, pool: Sequence[Row], values: Mapping[str, float | None]) -> dict[str, float]:
        """Scaled values, within groups."""
        groups: dict[str, list[str]] = {}
        for row in pool:
            groups.setdefault(self.group(row), []).append(row_id(row))
        result = {}
        for members in groups.values():
            known = [Fraction(value) for item in members if (value := values[item]) is not None]
            mean = sum(known, Fraction(0)) / max(1, len(known))
            variance = sum(((item - mean) ** 2 for item in known), Fraction(0)) / max(1, len(known))
            deviation = math.sqrt(float(variance))
            for item in members:
                value = values[item]
                result[item] = 0.0 if value is None or not deviation else (value - float(mean)) / deviation
        return result

    def scored(self, pool: Sequence[Row], made: Result) -> dict[str, float]:
        """Keys of attributes and hybrid; sections 10 and 11."""
        total = {row_id(row): 0.0 for row in pool}
        for term in self.attributes.get("score", []):
            scaled = self.z(pool, {row_id(row): self.number(row, term["attribute"]) for row in pool})
            for item in total:
                total[item] += term.get("weight", 1.0) * scaled[item]
        if self.method == "hybrid":
            part = self.settings.get("hybrid", {}).get("lambda", 0.5)
            ((_, weights),) = made.weights.items()
            resembling = self.z(pool, weights)
            # Quality is the score of attributes, whose terms are scaled: with lambda 0 only it is left.
            total = {item: part * resembling[item] + (1 - part) * total[item] for item in total}
        made.scores = total
        if self.attributes.get("choose", "top") == "top":
            return dict(total)
        tau = self.attributes.get("tau", 1.0)
        return {item: score / tau + gumbel(item, self.seed, "sample") for item, score in total.items()}

    def number(self, row: Row, name: str) -> float | None:
        """An attribute as a number; what is not finite is null."""
        value = self.value(row, name)
        return None if value is None or not math.isfinite(value) else float(value)

    # Section 9.

    def texts(self, row: tuple[str, str]) -> list[str]:
        """The texts of a row whose features count."""
        both = dict(zip(("instruction", "response"), row, strict=True))
        return [both[name] for name in self.dsir.get("fields", ["instruction", "response"])]

    def counted(self, row: tuple[str, str]) -> Counter[int]:
        """Features of a row."""
        kind = self.dsir.get("hash", "xxh3")
        return features(self.texts(row), self.dsir.get("ngrams", 2), self.dsir.get("buckets", 10_000), kind)

    def weigh(self, pool: Sequence[Row], made: Result) -> None:
        """Log weights of rows, fitted on them."""
        buckets = self.dsir.get("buckets", 10_000)
        counts = {row_id(row): self.counted((row["instruction"], row["response"])) for row in pool}
        share = self.dsir.get("fit_share", 1.0)
        raw: Counter[int] = Counter()
        for item, some in counts.items():
            if share >= 1 or draw(item, self.seed, "fit") < share:
                raw += some
        total = sum(raw.values())
        self.counts, self.raw = counts, raw
        q = [raw[at] / total for at in range(buckets)]
        for name, rows in self.targets.items():
            target: Counter[int] = Counter()
            for row in rows:
                target += self.counted(row)
            laplace = self.dsir.get("laplace", 1.0)
            whole = sum(target.values()) + laplace * buckets
            p = [(target[at] + laplace) / whole for at in range(buckets)]
            weight = [math.log(a + 1e-8) - math.log(b + 1e-8) for a, b in zip(p, q, strict=True)]
            made.weights[name] = {item: self.normal(some, weight) for item, some in counts.items()}

    def normal(self, some: Counter[int], weight: Sequence[float]) -> float:
        """The log weight of a row by its length."""
        size = max(1, sum(some.values()))
        length = {"sqrt": math.sqrt(size), "mean": size, "none": 1}[self.dsir.get("length", "sqrt")]
        return math.fsum(count * weight[bucket] for bucket, count in some.items()) / length

    def drawn(self, pool: Sequence[Row], made: Result) -> list[tuple[str, float, dict[str, float]]]:
        """Keys of each target."""
        shares = {item["name"]: item.get("share", 1.0) for item in self.dsir.get("targets", [])} or {"attributes": 1.0}
        noise = self.dsir.get("noise", True)
        return [
            (
                name,
                shares[name] / sum(shares.values()),
                {
                    item: key + (gumbel(item, self.seed, name) if noise else 0.0)
                    for item, key in made.weights[name].items()
                },
            )
            for name in self.targets
        ]

    # The choice.

    def take(self, pool: Sequence[Row], rankings: Sequence[tuple[str, float, dict[str, float]]], made: Result) -> None:
        """Take rows for one ranking after another."""
        sizes = {row_id(row): self.tokens(row) if self.settings.get("tokens") else 1 for row in pool}
        total = self.settings.get("tokens") or self.settings.get("rows")
        if total is None:
            total = math.floor(self.settings["share"] * len(pool))
        order = {row_id(row): (row["task"], row["ordinal"]) for row in pool}
        groups = {row_id(row): self.group(row) for row in pool}
        left = total
        for place, (name, share, keys) in enumerate(rankings):
            part = left if place == len(rankings) - 1 else math.floor(total * share)
            left -= part
            free = [item for item in order if item not in made.chosen]
            have = dict.fromkeys(sorted(set(groups.values())), 0)
            for item in free:
                have[groups[item]] += sizes[item]
            weights = self.group_weights(have)
            most = min(part, sum(count for group, count in have.items() if weights[group]))
            quotas = whole_numbers(allotted(weights, most, have), most)
            some: list[str] = []
            for group, quota in quotas.items():
                taken = 0
                for item in sorted(
                    (item for item in free if groups[item] == group), key=lambda item: (-keys[item], order[item])
                ):
                    if taken >= quota:
                        break
                    some.append(item)
                    taken += sizes[item]
                whole = sum(weights.values())
                asked = part * weights[group] / whole if whole else 0.0
                before = made.groups.get(group, [0.0, 0, 0])
                made.groups[group] = [before[0] + asked, before[1] + quota, before[2] + taken]
            made.taken[name] = sorted(some, key=lambda item: (-keys[item], order[item]))

    def group_weights(self, have: Mapping[str, int]) -> dict[str, float]:
        """By what the budget is shared out to groups."""
        quota = self.attributes.get("quota", {})
        method = quota.get("method", "proportional")
        if method == "weights":
            return {group: float(quota["weights"].get(group, 0)) for group in have}
        if method == "unimax":
            return {group: float(count > 0) for group, count in have.items()}
        exponent = quota.get("exponent", 1.0) if method == "exponent" else 1.0
        most = max(have.values(), default=0)
        return {group: (count / most) ** exponent if count else 0.0 for group, count in have.items()}

    # The report.

    def compare(self, pool: Sequence[Row], made: Result) -> None:
        """KL of each target with what is chosen for it, with a uniform sample of that size, and with raw."""
        buckets = self.dsir.get("buckets", 10_000)
        whole = sum(self.raw.values())
        q = [self.raw[at] / whole for at in range(buckets)]
        uniform = sorted(made.candidates, key=lambda item: -gumbel(item, self.seed, "uniform"))
        for name, rows in self.targets.items():
            target: Counter[int] = Counter()
            for row in rows:
                target += self.counted(row)
            size = sum(target.values())
            p = [target[at] / size for at in range(buckets)]
            taken = made.taken.get(name, made.taken.get(self.method, []))

            def smoothed(ids: Sequence[str]) -> list[float]:
                result: Counter[int] = Counter()
                for item in ids:
                    result += self.counts[item]
                total = sum(result.values())
                return [(result[at] + 1000 * q[at]) / (total + 1000) for at in range(buckets)]

            of_taken = kl(p, smoothed(taken))
            of_uniform = kl(p, smoothed(uniform[: len(taken)]))
            made.kl[name] = {"selected": of_taken, "uniform": of_uniform, "reduction": of_uniform - of_taken}
