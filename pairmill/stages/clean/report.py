"""What a person sees of a cleaned data set."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pairmill.engine.inputs import HELD_OUT
from pairmill.engine.manifest import Ledger, Manifest
from pairmill.formats.results.raw import CleanResult
from pairmill.report.charts import Bars, Histogram, Stacked
from pairmill.report.model import Block, Percent, Report, Samples, Section, Table, describe_names, describe_rows
from pairmill.sources.language.chats import CALLS_NOT_RENDERED, NOT_RENDERED, REASONING, TOOLS, WEIGHT_0
from pairmill.sources.parsed import FURTHER_TURNS
from pairmill.stages.clean.holdout import NOTE

_UNFOLDED = 4
_FILES = 50
_YEARS = 30
_CALL_ONLY = "tool_call_only"
_SAID_OF_CHATS = {
    REASONING: "messages with reasoning in a field of its own, which is left out",
    TOOLS: "records that declare tools, which are left out",
    _CALL_ONLY: "turns that call a tool and say nothing, which make no row",
    WEIGHT_0: "answers of weight 0, which are rows like others",
    CALLS_NOT_RENDERED: "turns that call a tool whose template does not write that, which make no row",
    **dict(
        zip(
            NOT_RENDERED,
            (
                "rows whose template does not write their reasoning",
                "chats whose template does not write the tools that they declare",
            ),
            strict=True,
        )
    ),
}

# Colours of what became of a record, as in Stacked below.
_DROPPED = 1


def report_of(manifest: Manifest) -> Report:
    """Return the report of a finished clean folder."""
    ledger, result = manifest.ledger, CleanResult.from_manifest(manifest)
    outputs, held_out = result.outputs, result.held_out
    # A manifest that was read again has its keys sorted; its report has to be the same.
    sources: dict[str, dict[str, Any]] = dict(sorted(result.sources.items()))
    ledgers = {name: Ledger(**item["ledger"]) for name, item in sources.items()}
    malformed = {name: item["rejects"] for name, item in sources.items()}
    odd = [f"{name} ({count:,})" for name, count in malformed.items() if count]
    turns = {name: item.notes.get(FURTHER_TURNS, 0) for name, item in ledgers.items()}
    chats = [f"{name} ({count:,})" for name, count in turns.items() if count]
    parts = [f"{name} ({item['about']['extract']})" for name, item in sources.items() if "extract" in item["about"]]
    look_at = [
        text
        for names, text in (
            (parts, f"Not all records were read: {describe_names(parts)}."),
            (odd, f"Malformed records: {describe_names(odd)}. They are put aside in rejects/."),
            (
                chats,
                f"Further turns of conversations are left out: {describe_names(chats)}. A row is made of the first. "
                "With turns: in a YAML source, each answer makes a row.",
            ),
        )
        if names
    ]
    look_at += [_misread(name, item["misread"]) for name, item in sources.items() if "misread" in item]
    look_at += [f"{name}: {text}." for name, item in sources.items() if (text := _left_out(item, ledgers[name]))]
    return Report(
        "clean",
        {
            "Sources": len(sources),
            "Records in": ledger.rows_in,
            "Kept": ledger.rows_kept,
            "Share kept": Percent.ratio(ledger.rows_kept, ledger.rows_in),
            "Dropped": ledger.rows_in - ledger.rows_kept,
            "Malformed": sum(malformed.values()),
            "Rows out": ledger.rows_out,
            **({"Held-out rows": sum(held_out.values())} if held_out else {}),
            **({"Prompts and pairs": sum(result.beside.values())} if result.beside else {}),
            "Files": len(outputs),
            "Fingerprint": manifest.fingerprint,
        },
        [
            Table(
                "Sources",
                ("Source", "Records in", "Kept", "Dropped", "Malformed", "Rows out", "Share kept"),
                [
                    (
                        name,
                        item.rows_in,
                        item.rows_kept,
                        item.rows_in - item.rows_kept,
                        malformed[name],
                        item.rows_out,
                        Percent.ratio(item.rows_kept, item.rows_in),
                    )
                    for name, item in ledgers.items()
                ],
                "Every record that came in is kept or dropped for a reason. Malformed ones, which are not what their "
                "source promises, are among the dropped. A record that is kept gives one or more rows.",
            ),
            Stacked(
                "Records kept and dropped",
                ("kept", "dropped", "malformed"),
                [
                    (name, (item.rows_kept, item.rows_in - item.rows_kept - malformed[name], malformed[name]))
                    for name, item in ledgers.items()
                ],
                "records",
            ),
            *_counts("Dropped, by reason", ledger.dropped, _DROPPED),
            *_notes(ledger),
            *_answers(sources),
            *(
                _section(name, item, ledgers[name], unfolded=len(sources) <= _UNFOLDED)
                for name, item in sources.items()
            ),
            _licences(sources),
            _files(outputs),
            *_apart(held_out, outputs),
        ],
        verdict=f"Records: {describe_rows(ledger)}; {ledger.rows_out:,} rows out"
        + (f" and {sum(held_out.values()):,} held out." if held_out else "."),
        look_at=look_at,
    )


def _section(name: str, source: Mapping[str, Any], ledger: Ledger, *, unfolded: bool) -> Section:
    share, malformed = Percent.ratio(ledger.rows_kept, ledger.rows_in), source["rejects"]
    blocks: list[Block] = [
        *_counts("Dropped, by reason", ledger.dropped, _DROPPED),
        *_notes(ledger),
        Histogram("Length of instructions", _bins(source["instruction_bits"]), "characters", "rows"),
        Histogram("Length of responses", _bins(source["response_bits"]), "characters", "rows"),
        Samples("Sample rows", source["samples"], tag="condition"),
        *_attributes(source.get("attributes", [])),
    ]
    if malformed:
        files: list[str] = source["reject_files"]
        where = files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} files more"
        blocks.append(
            Table(
                "Malformed records",
                ("Reason", "Records", "First", "Found", "A line that helps"),
                [
                    (why["reason"], why["count"], f"{why['file']} {why['place']}", why["found"], why["write"])
                    for why in source["reject_reasons"]
                ],
                f"{where} holds each with its file, place, reason and content.",
            )
        )
    parts = [f"{ledger.rows_in:,} in", f"{share} kept", f"{ledger.rows_out:,} rows out"]
    return Section(name, blocks, " · ".join(parts + [f"{malformed:,} malformed"] * bool(malformed)), unfolded)


def _misread(name: str, files: Mapping[str, int]) -> str:
    """Return which files have another encoding."""
    most = sorted(files.items(), key=lambda item: (-item[1], item[0]))
    named = describe_names([f"{path} ({count:,})" for path, count in most])
    return (
        f"{name}: {sum(files.values()):,} records are UTF-8 beyond ASCII and were read in another encoding, so é is "
        f"Ã©: {named}. Write encoding: {{{json.dumps(most[0][0], ensure_ascii=False)}: utf-8, …}}, with the pattern of "
        "the others and their encoding after it."
    )


def _left_out(source: Mapping[str, Any], ledger: Ledger) -> str:
    """Return what the chats of a source say beside the texts of their turns."""
    skipped = source.get("answers", {}).get("skipped", {})
    counts = {**ledger.notes, **{what: skipped.get(what, 0) for what in (_CALL_ONLY, CALLS_NOT_RENDERED)}}
    return "; ".join(f"{counts[what]:,} {text}" for what, text in _SAID_OF_CHATS.items() if counts.get(what))


def _notes(ledger: Ledger) -> list[Block]:
    records = {what: count for what, count in ledger.notes.items() if what not in (FURTHER_TURNS, NOTE)}
    turns = {"left out": ledger.notes[FURTHER_TURNS]} if FURTHER_TURNS in ledger.notes else {}
    return [
        *_counts("Noted of records that were kept", records),
        *_counts("Further turns of conversations", turns, unit="turns"),
    ]


def _answers(sources: Mapping[str, Mapping[str, Any]]) -> list[Block]:
    """Return what became of each answer of the chats."""
    result = {name: item["answers"] for name, item in sources.items() if "answers" in item}
    if not result:
        return []
    rows = [
        (name, item["found"], item["rows"], sum(item["skipped"].values()), _joined(item["skipped"]))
        for name, item in result.items()
    ]
    note = "Every answer is a row, or is skipped for a reason. Those of records that where: leaves out are not counted."
    return [
        Table("Answers of chats", ("Source", "Answers", "Rows", "Skipped", "By reason"), rows, note),
        *_chats(sources),
    ]


def _chats(sources: Mapping[str, Mapping[str, Any]]) -> list[Block]:
    """Return what the chats of each source are made of, and what their repeated prompts cost."""
    rows = [
        (
            name,
            item["chats"],
            answers["rows"],
            item["call_targets"],
            _joined(item["ended"]),
            item["distinct_tools"],
            _joined(item["top_tools"]),
            Percent.ratio(item["prompt_characters"], item["prompt_characters"] + item["response_characters"]),
            Percent.ratio(item["repeated_characters"], item["prompt_characters"] + item["response_characters"]),
        )
        for name, item, answers in (
            (name, source["chats"], source["answers"]) for name, source in sources.items() if "chats" in source
        )
    ]
    note = (
        "Of all characters of the rows: those of prompts, and those of prompts that another row of the chat has too "
        "(max_targets_per_chat: and stride: bound them). Targets are rows; those with calls call a tool."
    )
    columns = ("Source", "Chats", "Targets", "With calls", "Ended early", "Tools", "Most called", "Prompts", "Repeated")
    return [Table("Chats", columns, rows, note)] if rows else []


def _joined(counts: Mapping[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count:,} {reason}" for reason, count in ordered) or "–"


def _counts(title: str, counts: Mapping[str, int], colour: int = 0, unit: str = "records") -> list[Block]:
    """Return a chart, the largest count first; none of nothing."""
    bars = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [Bars(title, bars, unit, colour)] if bars else []


def _bins(bits: Sequence[int]) -> list[tuple[str, int]]:
    """Return counts of lengths in [2^(i-1), 2^i) by i, with these ranges, from the first used to the last."""
    used = [i for i, number in enumerate(bits) if number]
    return [(_range(i), bits[i]) for i in range(used[0], used[-1] + 1)] if used else []


def _range(bits: int) -> str:
    return str(bits) if bits < 2 else f"{1 << (bits - 1):,}–{(1 << bits) - 1:,}"


def _attributes(attributes: Sequence[Mapping[str, Any]]) -> list[Block]:
    if not attributes:
        return []
    rows = [
        (item["name"], item["type"], item["nulls"], _describe_values(item["type"], item["found"]))
        for item in attributes
    ]
    table = Table(
        "Attributes",
        ("Attribute", "Type", "Rows without", "Found"),
        rows,
        "attributes/source/ has their values, in the order of the rows.",
    )
    years = {
        item["name"]: sorted(item["found"].items()) for item in attributes if item["type"] == "date" and item["found"]
    }
    return [table, *(Bars(f"Rows by year of {name}", _by_decade(rows), "rows") for name, rows in years.items())]


def _describe_values(kind: str, values: Any) -> str:
    if kind in ("integer", "number"):
        return f"{values[0]} to {values[1]}" if values else ""
    if kind == "date":
        return f"{min(values)} to {max(values)}" if values else ""
    if kind == "boolean":
        return ", ".join(f"{value}: {count:,}" for value, count in sorted(values.items()))
    return " · ".join(values)


def _by_decade(years: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return rows by year, or by decade of many years."""
    if len(years) <= _YEARS:
        return list(years)
    decades: dict[str, int] = {}
    for year, count in years:
        decades[f"{year[:3]}0s"] = decades.get(f"{year[:3]}0s", 0) + count
    return list(decades.items())


def _apart(held_out: Mapping[str, int], outputs: Mapping[str, int]) -> list[Block]:
    if not held_out:
        return []
    largest = sorted(held_out.items(), key=lambda item: (-item[1], item[0]))
    rest = largest[_FILES:]
    note = f"The largest. {len(rest):,} more hold {sum(rows for _, rows in rest):,} rows." if rest else ""
    rows = [(path, count, outputs[path.removeprefix(HELD_OUT)]) for path, count in largest[:_FILES]]
    total = sum(held_out.values())
    table = Table("By rows", ("File", "Held-out rows", "Rows for training"), rows, note)
    return [Section("Held-out rows", [table], f"{len(held_out):,} files with {total:,} rows")]


def _licences(sources: Mapping[str, Mapping[str, Any]]) -> Table:
    about = {name: item["about"] for name, item in sources.items()}
    # Of raw files that were not fetched no revision is known.
    names = [
        name
        for name in ("licence", "extract", "revision", "origin", "citation")
        if any(name in item for item in about.values())
    ]
    return Table(
        "Licences and citations",
        ("Source", *(name.capitalize() for name in names)),
        [(source, *(_shortened(item.get(name, "–")) for name in names)) for source, item in about.items()],
        "_MANIFEST.json has the revisions in full." if "revision" in names else "",
    )


def _shortened(text: str) -> str:
    return re.sub(r"\b([0-9a-f]{12})[0-9a-f]{28,}\b", r"\1…", text)


def _files(outputs: Mapping[str, int]) -> Section:
    largest = sorted(outputs.items(), key=lambda item: (-item[1], item[0]))
    rest = largest[_FILES:]
    note = f"The largest. {len(rest):,} more hold {sum(rows for _, rows in rest):,} rows." if rest else ""
    total = sum(outputs.values())
    return Section(
        "Files", [Table("By rows", ("File", "Rows"), largest[:_FILES], note)], f"{len(outputs):,} with {total:,} rows"
    )
