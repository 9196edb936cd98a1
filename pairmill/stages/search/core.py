"""The search stage: a tokenized folder → mixtures for proxies; what they lost → the mixture that loses least.

It is started three times with the same options, and each time with more results: none, those of the proxies, and that
of the optimum. Its one round counts rows and response tokens, as mix does; all else follows from sums and results.
"""

import json
from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np

from pairmill.engine.manifest import InputRef, Ledger, Manifest, fingerprint_from
from pairmill.engine.options import too_many
from pairmill.engine.source_names import source_of
from pairmill.engine.stage import Outputs, Rounds, Shard, ShardRecord, Stage, StagePlan
from pairmill.engine.writer import Writer
from pairmill.errors import UsageError
from pairmill.evaluation import before
from pairmill.formats.drawn_rows import DrawnRows, refuse_training_rows
from pairmill.formats.training_results import SearchResult
from pairmill.mixture.counting import Counting
from pairmill.mixture.inputs import CountingPlan, counted_sources, ledgers_of, open_inputs
from pairmill.mixture.plan import BUCKETS, NAME, Mixture, identity
from pairmill.mixture.planned import Counted, mixture_of
from pairmill.mixture.planning import limits_of
from pairmill.mixture.settings import MixSettings
from pairmill.report.model import Report
from pairmill.stages.search import draw, findings, lengths, results
from pairmill.stages.search.config import SearchConfig
from pairmill.stages.search.findings import Findings, Measured
from pairmill.stages.search.laws import DEFAULT, LAWS
from pairmill.stages.search.report import report_of
from pairmill.stages.search.results import Evaluated, ProxyResults
from pairmill.stages.search.settings import SearchSettings
from pairmill.stages.search.space import Source, Space
from pairmill.storage import join
from pairmill.training.settings import TrainSettings

OPTIMUM: Final = "optimum.json"
"""The best mixture with the budget of a proxy, to be measured beside them; :data:`NAME` is the same with the whole."""
RESULTS: Final = "search.json"


def run_file(number: int) -> str:
    """Return the mixture of a proxy."""
    return f"run-{number:03}.json"


@dataclass(frozen=True)
class Drawn:
    """What is drawn, once the sources are counted.

    Attributes:
        space: that is searched.
        points: of the proxies, float64 [axes] each.
        mixtures: of the proxies.
        budget: of the whole training, and of a proxy, in response tokens.
        cap: passes over a source that has none of its own.
    """

    space: Space
    points: tuple[Any, ...]
    mixtures: tuple[Mixture, ...]
    budget: float
    proxy_budget: float
    cap: float | None
    counted: Counted

    def mixture(self, config: SearchConfig, to_count: CountingPlan, point: Any, budget: float) -> Mixture:
        """Return the plan of a mixture."""
        return _planned(config, to_count, self.counted, self.space.expand(point), budget, self.cap)


@dataclass(frozen=True, kw_only=True)
class SearchPlan(StagePlan[Counting]):
    """Args: to_count: the tasks; trainings: settings of proxies that are not trained yet, if known; proxies: what was
    measured of them; optimum: and of the optimum; earlier: an earlier search; drawn, fitted: what follows, once the
    sources are counted."""

    to_count: CountingPlan
    trainings: TrainSettings | None
    proxies: ProxyResults | None
    optimum: Evaluated | None
    earlier: SearchResult | None
    drawn: Drawn | None = None
    fitted: Findings | None = None
    losses: Measured | None = None


class Search(Stage[SearchConfig, SearchPlan]):
    """Count; draw; and with results: fit, and find the optimum."""

    name: ClassVar[str] = "search"
    watched: ClassVar[bool] = False
    version: ClassVar[int] = 4
    round_count: ClassVar[int] = 1
    history: ClassVar[dict[int, str]] = {
        2: "damage of records and files of shards could go unseen",
        3: "the key of a shard follows from all that it reads",
        4: "digests of data are BLAKE3; a manifest says which digest it has of each file",
    }
    config = SearchConfig

    def plan(self, config: SearchConfig) -> SearchPlan:
        settings, mixing = config.settings, config.mix_settings
        if mixing.phases:
            raise UsageError(
                "a search finds one mixture for the whole training",
                where="mix_config phases",
                got=f"{len(mixing.phases)} phases",
                expected="none",
                hint="search each phase with a mix_config of its own",
            )
        checked = _trainings_of(config)
        trainings = None if config.evaluated else checked
        if trainings is not None:
            lengths.refuse_epochs(trainings, config.epochs)
        to_count = open_inputs(config, mixing, verify=config.verify)
        refs = to_count.refs()
        earlier = None
        if config.earlier:
            fingerprint, earlier = results.earlier(config.earlier)
            refs.append(InputRef("earlier", fingerprint))
        if config.held_out:
            refuse_training_rows(
                DrawnRows.of_sample(config.held_out, "held_out", [config.root]),
                [DrawnRows.of_tokenized(to_count.where, to_count.inputs.tokenized, [it.task for it in to_count.tasks])],
                f"held_out={config.held_out}",
            )
            ours = (to_count.where, to_count.tokenizer)
            results.check_held_out(config.held_out, ours, _targets_of(to_count), settings.objective)
        proxies = optimum = None
        if config.evaluated:
            proxies = ProxyResults.open(config.sampled, config.evaluated)
            refs += [InputRef("evaluated", item.fingerprint) for item in proxies.evaluated]
        if config.measured:
            optimum = Evaluated.open(config.measured, "measured")
            refs.append(InputRef("measured", optimum.fingerprint))
        return SearchPlan(
            inputs=refs,
            rows_expected=to_count.rows,
            build_context=lambda: to_count.counting,
            says={"settings": settings.to_manifest(), "mix": _mix_values(mixing), **_length_values(trainings)},
            to_count=to_count,
            trainings=trainings,
            proxies=proxies,
            optimum=optimum,
            earlier=earlier,
        )

    def rounds(
        self, config: SearchConfig, plan: SearchPlan
    ) -> Generator[Sequence[Shard[Counting]], list[ShardRecord], SearchPlan]:
        records = yield list(plan.to_count.shards())
        drawn = _drawn(config, plan, counted_sources(plan.to_count.grouping, records))
        if plan.trainings is not None:
            lengths.refuse_short(plan.trainings, drawn.mixtures, plan.to_count, ledgers_of(records))
        fitted = losses = None
        if plan.proxies is not None:
            digests = {
                file.path.removeprefix(f"{BUCKETS}/").removesuffix(".npy"): file.digest
                for record in records
                for file in record.files
            }
            known = [identity(item.dump(), _digests_in(digests, item)) for item in drawn.mixtures]
            losses = plan.proxies.measured(known, np.stack(drawn.points), config.settings.objective)
            fitted = findings.find(losses, drawn.space, config.settings.objective.closeness, config.settings.law)
        return replace(plan, drawn=drawn, fitted=fitted, losses=losses, build_context=lambda: plan.context)

    def parts(self, plan: SearchPlan, rounds: Rounds) -> dict[str, Ledger]:
        """Return those of the tasks."""
        return ledgers_of(rounds[0])

    def finish(self, config: SearchConfig, plan: SearchPlan, rounds: Rounds, out: Writer) -> dict[str, Any]:
        super().finish(config, plan, rounds, out)  # the buckets of tasks, which the mixtures beside them need
        drawn = plan.drawn
        assert drawn is not None
        for number, mixture in enumerate(drawn.mixtures):
            out.write(run_file(number), mixture.dump())
        space = drawn.space
        fit = optimum = measured = None
        if plan.fitted is not None:
            assert plan.losses is not None
            point = plan.fitted.optimum.point
            out.write(NAME, drawn.mixture(config, plan.to_count, point, drawn.budget).dump())
            out.write(OPTIMUM, drawn.mixture(config, plan.to_count, point, drawn.proxy_budget).dump())
            fit = _fit_values(plan.fitted, plan.losses)
            optimum = _optimum_values(plan.fitted, drawn)
        if plan.optimum is not None:
            assert plan.proxies is not None
            measured = plan.proxies.measure_optimum(plan.optimum, config.settings.objective.measure)
        result = SearchResult(
            measure=config.settings.objective.measure,
            budget=drawn.budget,
            proxy_budget=drawn.proxy_budget,
            epochs=config.epochs,
            sources=[
                {
                    "name": item.name,
                    "tokens": item.tokens,
                    "cap": item.limit / item.tokens if np.isfinite(item.limit) else None,
                    "digest": item.digest,
                }
                for item in space.sources
            ],
            axes=[
                {"name": axis.name, "parts": dict(axis.parts), "natural": natural, "limit": limit}
                for axis, natural, limit in zip(space.axes, space.natural, space.limits, strict=True)
            ],
            earlier=plan.earlier is not None,
            runs=[space.expand(point) for point in drawn.points],
            fit=fit,
            optimum=optimum,
            measured=measured,
        )
        data = result.to_data()
        out.write(RESULTS, json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False).encode() + b"\n")
        return data

    def outputs(self, config: SearchConfig, manifest: Manifest, folder: str) -> Outputs:
        made = super().outputs(config, manifest, folder)
        if not manifest.data:
            return made
        result = SearchResult.from_manifest(manifest)
        runs = [{"mixture": join(folder, run_file(number))} for number in range(len(result.runs))]
        optimum = join(folder, OPTIMUM) if result.optimum else ""
        return made._replace(parameters={"mixtures": runs, "optimum": optimum})

    def metrics(self, manifest: Manifest) -> dict[str, float]:
        result = SearchResult.from_manifest(manifest)
        collected: dict[str, float] = {"runs": len(result.runs), "axes": len(result.axes)}
        if result.fit:
            agreement = result.fit["objective"]["agreement"]
            collected |= {
                name: round(agreement[name], 6) for name in ("pearson", "error") if agreement[name] is not None
            }
            collected["predicted"] = round(result.optimum["objective"], 6)
        if result.measured:
            collected["measured"] = round(results.objective(result.measured, result.fit["weights"]), 6)
        return collected

    def report(self, manifest: Manifest) -> Report:

        return report_of(manifest)


def _mix_values(settings: MixSettings) -> dict[str, Any]:
    """Return what of mix's settings is read: not how mix itself would share the budget out."""
    values = settings.to_manifest()
    for name in ("method", "exponent", "temperature", "weights", "phases", "allow_unfilled"):
        del values[name]
    return values


def _trainings_of(config: SearchConfig) -> TrainSettings | None:
    """Return the settings of the proxies, once those of their evaluations are checked too; None = not known."""
    if not config.train_config:
        return None
    result = TrainSettings.load(config.train_config, config.train_set, by="train_set")
    before.check(result, config.evaluate_config, config.evaluate_set)
    return result


def _length_values(trainings: TrainSettings | None) -> dict[str, Any]:
    """Return what the mixtures are compared with: others are compared again, although they are the same mixtures."""
    if trainings is None:
        return {}
    asked = trainings.training
    return {"proxies": {"steps": asked.steps, "tokens": asked.tokens, "batch": trainings.batch.tokens}}


def _targets_of(to_count: CountingPlan) -> dict[str, set[str]]:
    """By source, the names that its held-out rows have."""
    grouping = to_count.grouping
    made = {name: {source_of(task) for task in tasks} for name, tasks in grouping.sources.items()}
    if grouping.bucketed:
        made["buckets"] = {source_of(task) for task in grouping.bucketed}
    return made


def _digests_in(digests: Mapping[str, str], mixture: Mixture) -> dict[str, str]:
    return {task: digests[task] for task, bucket in mixture.tasks if bucket is not None}


def _cap(mixing: MixSettings, settings: SearchSettings) -> float | None:
    recipes = mixing.recipes()
    cap = recipes[0].max_epochs if recipes else mixing.max_epochs
    return settings.max_epochs if cap is None else cap


def _drawn(config: SearchConfig, plan: SearchPlan, counted: Counted) -> Drawn:
    settings, mixing = config.settings, config.mix_settings
    counts = {source.name: source.response_tokens for source in counted.sources}
    cap = _cap(mixing, settings)
    caps = {name: value for name, value in mixing.caps.items() if name in counts}
    limits = limits_of(counts, cap, caps)
    budget = float(mixing.budget) if mixing.budget is not None else _one_pass(counts, limits)
    proxy_budget = budget if settings.proxy_budget is None else float(settings.proxy_budget)
    if proxy_budget > budget:
        raise UsageError(
            "a proxy would see more than the training",
            where="search_config proxy_budget",
            got=f"{proxy_budget:,.0f}",
            expected=f"at most {budget:,.0f}, the budget of mix_config",
        )
    identities = _identities(plan.to_count, counted)
    sources = [Source(name, count, limits.get(name, np.inf), identities[name]) for name, count in counts.items()]
    kept = {} if plan.earlier is None else results.kept(plan.earlier, sources, settings.again)
    space = Space.from_sources(sources, budget, kept)
    count, least = settings.count(len(space.axes)), len(space.axes) + LAWS[settings.law].more_runs
    if 0 < config.max_runs < count:
        raise too_many(count, config.max_runs, "runs")
    if count < least:
        raise UsageError(
            "too few runs for the shares that are searched",
            where="search_config runs",
            got=f"{count} runs for {len(space.axes)} shares",
            expected=f"at least {least}; {SearchSettings().count(len(space.axes))} are a good number",
        )
    points = draw.mixtures(settings.draw.draw(), space.natural, space.limits, count)
    mixtures = [_planned(config, plan.to_count, counted, space.expand(point), proxy_budget, cap) for point in points]
    return Drawn(
        space=space,
        points=tuple(points),
        mixtures=tuple(mixtures),
        budget=budget,
        proxy_budget=proxy_budget,
        cap=cap,
        counted=counted,
    )


def _one_pass(counts: Mapping[str, int], limits: Mapping[str, float]) -> float:
    return float(sum(min(limits.get(name, np.inf), count) for name, count in counts.items()))


def _identities(to_count: CountingPlan, counted: Counted) -> dict[str, str]:
    """Return, for each source, what its rows and counts follow from."""
    options = asdict(to_count.counting.options)
    of_task = {item.task.name: item.identify() for item in to_count.tasks}
    return {
        source.name: fingerprint_from(
            "search source",
            options,
            [[task.task, task.bucket, task.rows, task.response_tokens, of_task[task.task]] for task in source.tasks],
        )
        for source in counted.sources
    }


def _planned(
    config: SearchConfig,
    to_count: CountingPlan,
    counted: Counted,
    shares: Mapping[str, float],
    budget: float,
    cap: float | None,
) -> Mixture:
    mixing = config.mix_settings
    settings = MixSettings(
        method="weights",
        budget=budget,
        weights=dict(shares),
        max_epochs=cap,
        caps=mixing.caps,
        within=mixing.within,
        sources=mixing.sources,
        others=mixing.others,
        buckets=mixing.buckets,
    )
    return mixture_of(settings, config, counted, to_count.inputs, to_count.where)


def _fit_values(fitted: Findings, losses: Measured) -> dict[str, Any]:
    """Return the laws, and how well each predicts the runs left out of its fit: for the report and search.json."""

    def describe(truth: Any, left_out: Any) -> dict[str, Any]:
        agreement = findings.agreement(truth, left_out)
        return {"measured": truth.tolist(), "left_out": left_out.tolist(), "agreement": agreement}

    targets = {
        name: {
            "floor": fitted.laws[name].floor,
            "slopes": fitted.laws[name].slopes.tolist(),
            **describe(losses.losses[name], fitted.left_out[name]),
        }
        for name in losses.losses
    }
    whole = describe(fitted.objective(losses.losses), fitted.objective(fitted.left_out))
    law = {"law": fitted.law} if fitted.law != DEFAULT else {}
    return {**law, "weights": dict(fitted.weights), "targets": targets, "objective": whole}


def _optimum_values(fitted: Findings, drawn: Drawn) -> dict[str, Any]:
    point = fitted.optimum.point
    shares = drawn.space.expand(point)
    predicted = fitted.predicted(point)
    slope = fitted.slope(point)
    return {
        "shares": shares,
        "passes": {item.name: shares[item.name] * drawn.budget / item.tokens for item in drawn.space.sources},
        "at_limit": [
            axis.name
            for axis, share, limit in zip(drawn.space.axes, point.tolist(), drawn.space.limits, strict=True)
            if limit < 1 and share >= limit - 2e-6
        ],
        "predicted": predicted,
        "objective": float(fitted.objective(predicted)),
        "sensitivities": {
            axis.name: value
            for axis, value in zip(drawn.space.axes, findings.sensitivities(slope, point).tolist(), strict=True)
        },
        "gap": fitted.optimum.gap,
    }
