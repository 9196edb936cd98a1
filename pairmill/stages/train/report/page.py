"""The report of a run: what was trained on what, how it went, and what it cost."""

import json
from collections.abc import Sequence
from typing import Final

from pairmill.engine.manifest import Manifest
from pairmill.formats.settings_file import flat
from pairmill.formats.training_results import TrainResult
from pairmill.report.html import Html, tag
from pairmill.report.markdown import plain
from pairmill.report.model import Block, Cell, Link, Percent, Report, Samples, Section, Table, describe_names
from pairmill.report.series import Dot, Lines, Series
from pairmill.stages.train.watch.outliers import FAR, WINDOW
from pairmill.stages.train.watch.progress import duration
from pairmill.stages.train.watch.records import perplexity

_IN_CHART: Final = 5
_RISEN: Final = 1.01
"""Held-out loss of this many times its least value is worth a look."""
_WAITED: Final = 0.01
_USED: Final = 0.8
_DASH: Final = "–"
_BAND: Final = "The pale band is from the least to the greatest value of the steps that a point stands for."


def report_of(manifest: Manifest) -> Report:
    """Make the report of a finished folder of train from its manifest."""
    result = TrainResult.from_manifest(manifest)
    return Report(
        "train",
        _figures(manifest),
        [
            *_losses(result),
            *_weights(result),
            *_by_source(result),
            *_highest(result),
            *_course(result),
            *_happened(result),
            *_absent(result),
            *_samples(result),
            _provenance(manifest),
            _cost(result),
            *_settings(result),
        ],
        verdict=_verdict(result),
        look_at=_look_at(result),
    )


def _figures(manifest: Manifest) -> dict[str, Cell]:
    result = TrainResult.from_manifest(manifest)
    last, speed = result.last, result.speed
    figures: dict[str, Cell] = {"Net": result.net, "Parameters": result.parameters}
    figures["Steps"] = last.get("step", 0)
    for name, key in (("Tokens", "tokens"), ("Labels", "labels")):
        if key in last:
            figures[name] = last[key]
    if "loss" in result.end:
        figures["Loss at the end"] = f"{result.end['loss']:.4f}"
    for name, key in (
        ("Held-out loss", "heldout_loss"),
        ("Held-out, averaged weights", "heldout_ema_loss"),
        ("Held-out perplexity", "heldout_perplexity"),
    ):
        if key in last:
            figures[name] = f"{last[key]:.4f}"
    if "flops" in last:
        figures["FLOPs"] = f"{last['flops']:.3g}"
    if "tokens_per_s" in speed:
        figures["Tokens/s"] = round(speed["tokens_per_s"])
    if "mfu" in speed:
        figures["Share of peak (MFU)"] = Percent(speed["mfu"])
    if "seconds" in last:
        figures["Time"] = duration(last["seconds"])
    if result.price_per_hour:
        figures["Cost"] = _price(result)
    return {**figures, "Fingerprint": manifest.fingerprint}


def _verdict(result: TrainResult) -> str:
    last = result.last
    steps = last.get("step", 0)
    sentence = f"{result.net} with {result.parameters:,} parameters, {steps:,} step" + "s" * (steps != 1)
    if "tokens" in last:
        sentence += f" on {last['tokens']:,} tokens"
    if result.by_source:
        sentence += f" of {len(result.by_source):,} source" + "s" * (len(result.by_source) > 1)
    if "loss" in result.end and result.first_loss is not None:
        sentence += f": loss {result.first_loss:.3f} → {result.end['loss']:.3f}"
    if "heldout_loss" in last:
        sentence += f", held-out {last['heldout_loss']:.3f} (perplexity {perplexity(last['heldout_loss']):.2f})"
    return f"{sentence}."


def _look_at(result: TrainResult) -> list[str]:
    lines, last, curves, counts = [], result.last, result.curves, result.event_counts
    if counts.get("skipped"):
        lines.append(f"Updates that all ranks skipped, because a number was not finite: {counts['skipped']:,}.")
    if counts.get("rolled_back"):
        lines.append("Weights went back to an earlier checkpoint; the table of events says from where.")
    never = [name for name, steps in result.absent.items() if steps >= last.get("step", 0)]
    if never:
        lines.append(f"These parameters had no gradient in any step: {describe_names(never)}.")
    if "heldout_loss" not in last:
        lines.append("No held-out rows: set some apart (holdout=) to see what the net learns beyond its rows.")
    for key, name in (("heldout_loss", "Held-out loss"), ("heldout_ema_loss", "Held-out loss of averaged weights")):
        points = curves.get(key, [])
        if points:
            step, least = min(((point[0], point[2]) for point in points), key=lambda point: point[1])
            if last[key] > _RISEN * least:
                lines.append(f"{name} was least at step {step:,} ({least:.4f}) and has risen to {last[key]:.4f}.")
    if last.get("heldout_ema_loss", 0.0) > last.get("heldout_loss", 0.0) > 0:
        lines.append("Averaged weights are worse than the current ones on held-out rows: use the current ones.")
    rates = [point[1] for point in curves.get("lr", [])]
    if len(rates) > 1 and rates[-1] >= max(rates):
        lines.append("The learning rate does not fall after its warm-up.")
    if result.speed.get("wait_share", 0.0) > _WAITED:
        lines.append(f"Steps waited for data {Percent(result.speed['wait_share'])} of their time.")
    used = [point[1] for point in curves.get("slots_used", [])]
    if used and sum(used) / len(used) < _USED:
        lines.append(f"Only {Percent(sum(used) / len(used))} of the slots of batches held a token.")
    return lines


def _losses(result: TrainResult) -> list[Block]:
    names = {"loss": "training", "heldout_loss": "held out", "heldout_ema_loss": "held out, averaged"}
    marks = [item["step"] for item in result.events if item["event"] == "rolled_back"]
    series = [_series(result, key, name, band=key == "loss") for key, name in names.items()]
    half = result.last.get("step", 0) / 2
    late = [_after(item, half) for item in series]
    dots = _dots(result, "loss")
    blocks: list[Block] = [Lines("Loss", series, unit="nats a label", marks=marks, dots=dots)]
    if sum(len(item.points) for item in late) > 3:
        blocks.append(Lines("Loss, second half", late, unit="nats a label", marks=marks, tabled=False, dots=dots))
    notes = ["The loss is the mean cross entropy of the labels of a step."]
    notes += [_BAND] if any(item.band for item in series) else []
    notes += ["A dot leads to the rows of a step that sticks out."] if dots else []
    notes += ["A dashed line is where weights went back to an earlier checkpoint."] if marks else []
    return [*blocks, _Note(" ".join(notes))]


def _weights(result: TrainResult) -> list[Block]:
    last = result.last
    if "heldout_ema_loss" not in last:
        return []
    rows = [
        (name, last[f"{key}_loss"], last[f"{key}_perplexity"])
        for name, key in (("current", "heldout"), ("moving average", "heldout_ema"))
    ]
    better = min(rows, key=lambda row: row[1])[0]
    beta = result.ema_beta
    note = f"Of {last['heldout_labels']:,} labels of held-out rows, at the end. Lower: {better}."
    note += f" The moving average has β = {beta:.6g}." if beta else ""
    shown = [(name, f"{loss:.4f}", f"{results:.3f}") for name, loss, results in rows]
    return [Table("Averaged weights against the current ones", ("Weights", "Loss", "Perplexity"), shown, note)]


def _by_source(result: TrainResult) -> list[Block]:
    sources, curves = result.by_source, result.curves
    if not sources:
        return []
    blocks: list[Block] = []
    drawn = [name for name in sources if f"loss/{name}" in curves or f"heldout_loss/{name}" in curves]
    for first in range(0, len(drawn), _IN_CHART):
        some = drawn[first : first + _IN_CHART]
        number = f" ({first + 1} to {first + len(some)})" if len(drawn) > _IN_CHART else ""
        for kind, title in (("loss", "Loss by source"), ("heldout_loss", "Held-out loss by source")):
            series = [_series(result, f"{kind}/{name}", name) for name in some]
            blocks.append(Lines(f"{title}{number}", series, unit="nats a label", tabled=False))
    tokens = sum(item.get("tokens", 0) for item in sources.values())
    planned = any("planned" in item for item in sources.values())
    header = ["Source", "Tokens", "Share", *(["Planned"] if planned else []), "Labels", "Loss, first", "Loss, end"]
    header += ["Held-out loss", "Held out, averaged", "Held-out perplexity"]
    rows: list[list[Cell]] = []
    for name, item in sources.items():
        share: list[Cell] = [int(item.get("tokens", 0)), Percent.ratio(item.get("tokens", 0), tokens)]
        share += ([Percent(item["planned"]) if "planned" in item else _DASH]) if planned else []
        losses = [_loss(item.get(key)) for key in ("first_loss", "loss", "heldout_loss", "heldout_ema_loss")]
        shown = f"{perplexity(item['heldout_loss']):.2f}" if "heldout_loss" in item else _DASH
        rows.append([name, *share, int(item.get("labels", 0)), *losses, shown])
    note = "Tokens that were trained on, all epochs together; losses at the end are means over the last steps."
    return [*blocks, Table("Sources", header, rows, note)]


def _dots(result: TrainResult, key: str) -> list[Dot]:
    """Return the steps that stick out and have rows, as points of a curve."""
    return [
        Dot(item["step"], item[key], f"#step-{item['step']}", f"step {item['step']:,}: its rows")
        for item in result.highest
        if item["texts"]
    ]


def _highest(result: TrainResult) -> list[Block]:
    steps = [item for item in result.highest if item["texts"]]
    if not steps:
        return []
    count = result.event_counts.get("outlier", 0)
    head = f"{count:,} step{'s are outliers' if count != 1 else ' is an outlier'}" if count else "No step is an outlier"
    rows = [
        (
            Link(f"{item['step']:,}", f"#step-{item['step']}"),
            item["what"].replace("_", " ").replace("grad", "gradient"),
            f"{item[item['what']]:.4g}",
            f"{item['usual']:.4g}",
            f"{item['times']:.1f}",
        )
        for item in steps
    ]
    note = (
        f"Of the {WINDOW} steps before it; an outlier is more than {FAR:g} spreads above the median. "
        "`pairmill trace run=<this folder> step=<step>` prints all rows of a step with the records that they are of."
    )
    table = Table("The steps that stick out the most", ("Step", "What", "Value", "Median", "Spreads above"), rows, note)
    texts = [
        _Anchored(
            f"step-{item['step']}",
            Samples(f"Rows of step {item['step']:,} with the longest responses", item["texts"], "row"),
        )
        for item in steps
    ]
    return [Section("Steps that stick out", [table, *texts], head, unfolded=True)]


def _course(result: TrainResult) -> list[Block]:
    """Show what is watched beside the loss; what did not vary says so in one point less."""
    used = [
        Series(item.name, [(x, 100 * y) for x, y in item.points]) for item in [_series(result, "slots_used", "used")]
    ]
    b = _series(result, "b", "b")
    return [
        Lines("Learning rate", [_series(result, "lr", "rate")], zero=True),
        Lines(
            "Gradient norm, before clipping",
            [_series(result, "grad_norm", "norm", band=True)],
            zero=True,
            dots=_dots(result, "grad_norm"),
        ),
        Lines("Throughput", [_series(result, "tokens_per_s", "rate")], unit="tokens a second", zero=True, tabled=False),
        Lines("Slots used", used, unit="% of the slots", zero=True, tabled=False),
        Lines("Differentiated steps, b", [b], zero=True),
        Lines(
            "Time of a step",
            [_series(result, "step_s", "step"), _series(result, "wait_s", "of it, waiting for data")],
            unit="seconds",
            zero=True,
            tabled=False,
        ),
        Lines(
            "Memory of a rank, at most", [_series(result, "memory_gb", "memory")], unit="GB", zero=True, tabled=False
        ),
    ]


def _happened(result: TrainResult) -> list[Block]:
    rows = []
    for item in result.events:
        says = {name: value for name, value in item.items() if name not in {"step", "event"}}
        details = ", ".join(f"{name.replace('_', ' ')}: {_text(value)}" for name, value in says.items())
        rows.append((item["step"], item["event"].replace("_", " "), details or _DASH))
    counts = result.event_counts
    skipped, back = counts.get("skipped", 0), counts.get("rolled_back", 0)
    note = f"Skipped updates: {skipped:,}. Returns to an earlier checkpoint: {back:,}."
    if not rows:
        return [_Note(f"{note} The run was never interrupted.")]
    return [Table("Skipped steps, returns, stops and resumes", ("Step", "Event", "Details"), rows, note)]


def _absent(result: TrainResult) -> list[Block]:
    steps = result.last.get("step", 0)
    rows = [
        (name, count, Percent.ratio(count, steps))
        for name, count in sorted(result.absent.items(), key=lambda item: (-item[1], item[0]))
    ]
    if not rows:
        return [_Note("Every parameter had a gradient in every step.")]
    note = "Not differentiated in these steps: neither gradient, nor decay, nor moments. They stay what they were."
    return [Table("Parameters without a gradient", ("Parameter", "Steps", "Of all steps"), rows, note)]


def _samples(result: TrainResult) -> list[Block]:
    results = result.samples
    if not results:
        return []
    rows = [
        {"condition": item["condition"] or "none", "prompt": item["prompt"], "written": item["text"]}
        for item in results["texts"]
    ]
    return [Samples(f"What the net writes after step {results['step']:,}", rows, "condition")]


def _provenance(manifest: Manifest) -> Block:
    result = TrainResult.from_manifest(manifest)
    rows = [
        ("plan", result.plan or _DASH),
        *((name, _text(value)) for name, value in result.data.items()),
        *((f"input: {item.role}", item.fingerprint) for item in manifest.inputs),
    ]
    return Table("Data", ("What", "Which"), rows, "A run goes on only with the same plan.")


def _cost(result: TrainResult) -> Block:
    last, speed = result.last, result.speed
    rows: list[tuple[str, Cell]] = [
        ("Devices", result.devices),
        ("Precision", result.precision),
        ("Attention", result.attention or _DASH),
        ("FLOPs of training, by the formula", f"{last.get('flops', 0):.4g}"),
        ("Hours", f"{_hours(result):.4g}"),
        ("Hours of devices", f"{_hours(result) * result.device_count:.4g}"),
    ]
    if "tokens_per_s" in speed:
        rows.append(("Tokens a second, without evaluation and checkpoints", round(speed["tokens_per_s"])))
        rows.append(("Of it waiting for data", Percent(speed["wait_share"])))
    if "mfu" in speed:
        rows.append(("Share of the devices' peak (MFU)", Percent(speed["mfu"])))
    if result.price_per_hour:
        rows.append(("Price of a device, an hour", f"{result.price_per_hour:,.2f}"))
        rows.append(("Cost", _price(result)))
    note = (
        "Hours are of the clock, with evaluation and checkpoints. Work after the last checkpoint of a killed attempt "
    )
    return Table("What it took", ("What", "How much"), rows, note + "is not among them.")


def _settings(result: TrainResult) -> list[Block]:
    profile = result.profile or "none"
    changed = [(name, _text(theirs), _text(mine)) for name, (theirs, mine) in result.differences.items()]
    every = [(name, _text(value)) for name, value in flat(result.settings).items()]
    blocks: list[Block] = []
    if changed:
        blocks.append(Table(f"Where they differ from the profile {profile}", ("Setting", "Profile", "Here"), changed))
    blocks.append(Table("All settings", ("Setting", "Value"), every))
    return [Section("Settings", blocks, f"profile {profile}, {len(changed):,} changed")]


class _Anchored(Block):
    """A block that a link of the page leads to; for the page only."""

    def __init__(self, name: str, block: Block) -> None:
        self._name, self._block = name, block

    def html(self, level: int) -> Html:
        return tag("div", self._block.html(level), id=self._name)

    def markdown(self, level: int) -> list[str]:
        return self._block.markdown(level)


class _Note(Block):
    """A sentence of its own, for page and text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def html(self, level: int) -> Html:
        return tag("p", self._text)

    def markdown(self, level: int) -> list[str]:
        return ["", plain(self._text)]


def _series(result: TrainResult, key: str, name: str, *, band: bool = False) -> Series:
    points: Sequence[Sequence[float]] = result.curves.get(key, [])
    varies = band and any(low != high for _, _, low, high in points)
    return Series(
        name, [(point[0], point[1]) for point in points], [(item[2], item[3]) for item in points] if varies else ()
    )


def _after(series: Series, step: float) -> Series:
    kept = [at for at, (x, _) in enumerate(series.points) if x >= step]
    return Series(
        series.name, [series.points[at] for at in kept], [series.band[at] for at in kept] if series.band else ()
    )


def _hours(result: TrainResult) -> float:
    return float(result.last.get("seconds", 0.0)) / 3600


def _price(result: TrainResult) -> str:
    return f"{_hours(result) * result.device_count * result.price_per_hour:,.2f}"


def _loss(value: float | None) -> str:
    return _DASH if value is None else f"{value:.4f}"


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
