"""The report of an evaluation, from its manifest alone."""

from collections.abc import Mapping
from typing import Any

from pairmill.engine.manifest import Manifest
from pairmill.evaluation.settings import LENIENT, STRICT
from pairmill.formats.training_results import EvaluateResult
from pairmill.report.charts import Bars
from pairmill.report.model import Block, Cell, Percent, Report, Section, Table
from pairmill.stages.evaluate.cautions import cautions, share

_NOTE = (
    "The figure is the mean over questions, its interval Wilson's at 95%. Macro is the mean over groups (subjects, "
    "categories). Strict: the text, or its box, is the answer; lenient: the answer may also be in a sentence. Further "
    "columns score the same answers in other ways: a figure is comparable only with one that is scored as it is."
)


def report_of(manifest: Manifest) -> Report:
    """Return the report of a finished folder of evaluate."""
    result = EvaluateResult.from_manifest(manifest)
    table, model = result.benchmarks, result.model
    figures: dict[str, Cell] = {"Model": model["kind"]}
    figures |= {name.capitalize(): model[name] for name in ("name", "revision", "weights", "steps") if name in model}
    figures |= {"Profile": result.profile, "Questions": manifest.ledger.rows_out, "Fingerprint": manifest.fingerprint}
    sections: list[Block] = []
    if table:
        apart = {name: item["unseen"] for name, item in table.items() if item["unseen"] is not None}
        seen = sum(item["seen"] for item in table.values())
        none = " No training row repeats a question." if apart and not seen else ""
        sections += [_benchmarks("Benchmarks", {name: item["all"] for name, item in table.items()}, _NOTE + none)]
        shown = [(name, round(100 * item["all"]["figure"], 1)) for name, item in table.items()]
        sections += [Bars("Figure of each benchmark", shown, "%", tabled=False, most=100)]
        if seen:
            note = f"Without the {seen:,} questions that a training row repeats."
            sections.append(_benchmarks("Questions that no training row has", apart, note))
    if result.held_out is not None:
        sections.append(_held_out(result.held_out))
    groups = [
        Table(name, ("Group", "Questions", "Figure"), [(g, v["n"], Percent(v["figure"])) for g, v in results.items()])
        for name, item in table.items()
        if len(results := item["all"]["groups"]) > 1
    ]
    invalid: list[list[Cell]] = [
        [name, cause, count, "; ".join(f"{question}: …{end}" for question, end in item["examples"][cause])]
        for name, item in table.items()
        for cause, count in sorted(item["causes"].items())
    ]
    if invalid:
        note = (
            "Over context: the prompt left no room. Cut by limit: it was not at its end. Examples are ends of answers."
        )
        sections.append(
            Table("Answers that cannot be read", ("Benchmark", "Cause", "Answers", "Examples"), invalid, note)
        )
    if groups:
        sections.append(Section("Groups", groups, f"{len(groups)} benchmark{'s' * (len(groups) > 1)}"))
    if table:
        sections.append(Section("How it was asked", [_questions(table, model["kind"])], "data and generation settings"))
    return Report("evaluate", figures, sections, verdict=_verdict(result), look_at=_look_at(manifest, table))


def _benchmarks(title: str, table: Mapping[str, Any], note: str) -> Table:
    names = sorted({name for item in table.values() for name in item["also"]})
    first = [name for name in (STRICT, LENIENT) if LENIENT in names]
    last = [name for name in names if name not in first]
    rows: list[list[Cell]] = []
    for name, item in table.items():
        beside, also = ([_further(item["also"].get(extra)) for extra in some] for some in (first, last))
        interval = f"{share(item['low'])} – {share(item['high'])}"
        cells: list[Cell] = [name, item["n"], share(item["figure"]), *beside, interval]
        rows.append([*cells, share(item["macro"]), share(item["invalid"]), *also])
    head = ["Benchmark", "Questions", "Figure", *map(str.capitalize, first), "95% interval", "Macro", "Invalid"]
    return Table(title, [*head, *(name.replace("_", " ") for name in last)], rows, note)


def _further(value: float | None) -> Cell:
    """Return a mean: of scores from 0 to 1, or of counts."""
    return share(value) if value is None or value <= 1 else f"{value:.3g}"


def _held_out(held_out: Mapping[str, Any]) -> Table:
    rows: list[list[Cell]] = []
    # A manifest keeps no order of keys.
    for name, each in sorted(held_out["table"].items(), key=lambda item: (item[0] != "all", item[0])):
        figures = [_figure(each[key]) for key in ("loss", "loss_error", "bits_per_byte", "bits_per_byte_error")]
        rows.append(["all sources" if name == "all" else name, each["rows"], each["tokens"], each["bytes"], *figures])
    note = (
        "Loss in nats a response token; ± is the standard error over rows. Bits per byte compare runs with other "
        f"tokenizers. Bytes: {_bytes(held_out)}."
    )
    head = ("Source", "Rows", "Response tokens", "Bytes", "Loss", "±", "Bits per byte", "±")
    return Table("Held-out loss", head, rows, note)


def _bytes(held_out: Mapping[str, Any]) -> str:
    """Return where the bytes of the rows come from."""
    kept = held_out["kept_bytes"]
    counted = held_out["table"]["all"]["rows"] - kept
    parts = [f"those of the texts, which tokenize kept, for {kept:,} rows"] if kept else []
    if counted:
        parts.append(f"counted from tokenizer.json for {counted:,} rows, cut ones or such as tokenize kept none of")
        if not held_out["exact"]:
            parts.append("which is not exact, as the tokenizer is not byte-level")
    return ", ".join(parts)


def _figure(value: float | None) -> Cell:
    return "–" if value is None else f"{value:.4f}"


def _questions(table: Mapping[str, Any], kind: str) -> Table:
    rows: list[list[Cell]] = []
    for name, item in table.items():
        origin, how = item["data"], item["generation"]
        place = f"{origin['place']}@{origin['revision'][:12]}" if origin["revision"] else origin["place"]
        condition = how["condition"] or "none"
        temperature, ends = f"{how['temperature']:g}", " ".join(map(repr, how["stop"])) or "–"
        rows.append([name, place, origin["digest"], condition, how["samples"], temperature, how["max_tokens"], ends])
    head = ("Benchmark", "Data", "Digest", "Condition", "Texts a question", "Temperature", "Most tokens", "Ends before")
    return Table("Data and generation", head, rows, "A server is sent no conditions." if kind == "server" else "")


def _verdict(result: EvaluateResult) -> str:
    parts = [f"{name} {_score(item['all'])} of {item['all']['n']:,}" for name, item in result.benchmarks.items()]
    if result.held_out is not None:
        whole = result.held_out["table"]["all"]
        parts.append(f"held-out loss {_figure(whole['loss'])} over {whole['rows']:,} rows")
    return "; ".join(parts) + "."


def _score(figures: Mapping[str, Any]) -> str:
    """Return the figure; where answers are read in two ways, both."""
    ways = [f"{share(figures['also'][name])} {name}" for name in (STRICT, LENIENT) if LENIENT in figures["also"]]
    return f"{', '.join(ways)}," if ways else share(figures["figure"])


def _look_at(manifest: Manifest, table: Mapping[str, Any]) -> list[str]:
    result = list(cautions(table, manifest.shards))
    for name, item in table.items():
        if item["seen"]:
            result.append(f"{name}: {item['seen']:,} questions are in the training rows; see the figure without them.")
    return result
