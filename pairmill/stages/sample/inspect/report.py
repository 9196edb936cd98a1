"""The report of ``inspect``: a training run before it begins."""

import math

import numpy as np
from numpy.typing import NDArray

from pairmill.loader.folder import Metadata
from pairmill.loader.row_plan import Balance
from pairmill.mixture.realised import Realised
from pairmill.mixture.shown import blocks, summary
from pairmill.report.charts import Bars, Histogram, Stacked
from pairmill.report.model import Block, Percent, Report, Table
from pairmill.report.powers import bins
from pairmill.stages.sample.inspect.config import InspectConfig
from pairmill.stages.sample.inspect.walk import COSTS, TrainingPreview

_WORK = COSTS[2]
_MATTERS = 0.01
"""The smallest share that is worth a sentence."""
_UNEVEN, _EVENER = 1.1, 0.02
"""The busiest rank over the mean that is worth a sentence; by how much another balance must lower it."""
_BINS = 12


def report_of(
    preview: TrainingPreview, metadata: Metadata, config: InspectConfig, realised: Realised | None = None
) -> Report:
    """Report steps, slots, rows left over, which rank the others wait for, and what became of a mixture."""
    total, world = preview.total, preview.world
    slots = preview.slots(total)
    estimate = metadata.total_steps(len(preview.epochs), world.batch_tokens)
    whole = total.rows + total.rows_left
    sections: list[Block] = [
        Stacked(
            "Slots and tokens by epoch",
            ("used", "padding", "left over, in no batch"),
            [
                (f"epoch_{number}", (item.inputs, preview.slots(item) - item.inputs, item.inputs_left))
                for number, item in enumerate(preview.epochs)
            ],
            "tokens",
        ),
        *_epochs(preview, config),
    ]
    if world.ranks > 1:
        sections += [
            Bars(
                "Attention work of the busiest rank, by balance",
                [(_named(name, config), Percent(item.overall[_WORK] - 1)) for name, item in preview.imbalance.items()],
                "above the mean",
                tabled=False,
            ),
            _balances(preview, config),
        ]
    sections += [
        Histogram("Rows over all epochs by length", bins(preview.lengths.tolist()), "inputs of a row", "rows"),
        Histogram(
            "Global batches by slots used",
            _by_share(np.array(preview.used) / world.batch_tokens),
            "slots used",
            "batches",
        ),
        _ranks(preview),
        Table(
            "Longest rows",
            ("Epoch", "Row", "Instruction tokens", "Response tokens", "Inputs", "Of a rank's slots"),
            [
                (
                    item.epoch,
                    item.row,
                    item.inst_len,
                    item.resp_len,
                    item.inputs,
                    Percent.ratio(item.inputs, world.slots),
                )
                for item in preview.longest
            ],
            "A row that several epochs have is listed once, where it comes first. Inputs are all tokens but the last.",
        ),
    ]
    return Report(
        "inspect",
        {
            "Epochs": len(preview.epochs),
            "Steps": total.batches,
            "Steps, HRM-Text's estimate": estimate,
            "Slots used": Percent.ratio(total.inputs, slots),
            "Supervised slots": Percent.ratio(total.targets, slots),
            "Rows": preview.rows,
            "Rows left over": Percent.ratio(total.rows_left, whole),
            "Rows skipped": total.rows_skipped,
            "Rows of one response token": preview.one_token,
            "Ranks": world.ranks,
            "Slots of a rank": world.slots,
            "Balance, tail": f"{config.balance}, {config.tail}",
            **({"Mixture": summary(realised)} if realised else {}),
        },
        [*sections, *(blocks(realised) if realised else [])],
        verdict=_verdict(preview, config),
        look_at=_look_at(preview, metadata, estimate, config),
    )


def _verdict(preview: TrainingPreview, config: InspectConfig) -> str:
    total = preview.total
    used = Percent.ratio(total.inputs, preview.slots(total))
    left = Percent.ratio(total.rows_left, total.rows + total.rows_left)
    verdict = f"{total.batches:,} steps: {used} of their slots are used, {left} of the rows are left over"
    if preview.world.ranks == 1:
        return f"{verdict}."
    imbalance = preview.imbalance[config.balance].overall[_WORK]
    verdict = f"{verdict}; the busiest rank has {imbalance:.2f} times the mean attention work"
    better = _better(preview, config)
    return f"{verdict}: balance={better[0]} lowers it to {better[1]:.2f}." if better else f"{verdict}."


def _better(preview: TrainingPreview, config: InspectConfig) -> tuple[Balance, float] | None:
    """Return the balance that evens out attention most, if it is not the chosen one and makes a difference."""
    name, imbalance = min(preview.imbalance.items(), key=lambda item: item[1].overall[_WORK])
    least = imbalance.overall[_WORK]
    return (name, least) if least <= preview.imbalance[config.balance].overall[_WORK] - _EVENER else None


def _look_at(preview: TrainingPreview, metadata: Metadata, estimate: int, config: InspectConfig) -> list[str]:
    total, world = preview.total, preview.world
    longest = preview.longest[0].inputs
    lines = []
    if longest > metadata.max_seq_len:
        lines.append(
            f"The longest row has {longest:,} inputs, and the model's positions end at {metadata.max_seq_len:,} "
            "(max_seq_len of metadata.json, less one)."
        )
    left = Percent.ratio(total.inputs_left, total.inputs + total.inputs_left)
    if left > _MATTERS:
        hint = {
            "drop": "tail=carry takes them into the next epoch",
            "keep": "more rows, or smaller batches, leave fewer",
            "carry": "only the last epoch leaves rows: smaller batches leave fewer",
        }[config.tail]
        lines.append(f"{total.rows_left:,} rows with {left} of the tokens are left over: {hint}.")
    unused = Percent(1 - total.inputs / preview.slots(total))
    if unused > _MATTERS:
        hint = (
            "an epoch's last batch is not full"
            if config.tail == "keep"
            else f"the longest row takes {Percent.ratio(longest, world.slots)} of a rank's, and more batch_tokens help"
        )
        lines.append(f"{unused} of the slots are padding: {hint}.")
    if abs(estimate - total.batches) > _MATTERS * total.batches:
        apart = f"{abs(estimate - total.batches):,} {'fewer' if estimate < total.batches else 'more'} than there are"
        lines.append(
            f"HRM-Text plans its learning rate for {estimate:,} steps, {apart}: it counts the last token of "
            "each row, but neither padding nor the rows left over."
        )
    better = _better(preview, config)
    if world.ranks > 1 and not better and preview.imbalance[config.balance].overall[_WORK] > _UNEVEN:
        lines.append(
            "No balance evens out attention: a few rows are most of a rank's work. More batch_tokens would help."
        )
    if total.rows_skipped:
        reasons = []
        if config.long_rows == "skip" and preview.long:
            room = "a rank" if config.packing == "ranks" else "a global batch"
            reasons.append(f"{preview.long:,} are longer than {room}'s slots")
        if config.one_token_rows == "skip" and preview.one_token:  # noqa: S105 (no password)
            reasons.append(f"{preview.one_token:,} have a response of one token")
        lines.append(f"{total.rows_skipped:,} of {preview.rows:,} rows are skipped: {' and '.join(reasons)}.")
    elif preview.one_token:
        lines.append(
            f"{preview.one_token:,} of {preview.rows:,} rows have a response of one token: HRM-Text's own loader can "
            "give a rank nothing else, on which its attention fails; pairmill's gives each rank another row too."
        )
    lines += [f"balance={name} cannot pack these rows: {reason}" for name, reason in preview.failed.items()]
    return lines


def _named(name: str, config: InspectConfig) -> str:
    return f"{name} (chosen)" if name == config.balance else name


def _epochs(preview: TrainingPreview, config: InspectConfig) -> list[Block]:
    named = [(f"epoch_{number}", item) for number, item in enumerate(preview.epochs)]
    if len(named) > 1:
        named.append(("all", preview.total))
    crossing = "A batch that runs into the next epoch counts where it begins. " if config.tail == "carry" else ""
    return [
        Table(
            "Batches by epoch",
            ("Epoch", "Batches", "Rows", "Inputs", "Padding", "Slots used", "Supervised slots"),
            [
                (
                    name,
                    item.batches,
                    item.rows,
                    item.inputs,
                    preview.slots(item) - item.inputs,
                    Percent.ratio(item.inputs, preview.slots(item)),
                    Percent.ratio(item.targets, preview.slots(item)),
                )
                for name, item in named
            ],
            f"{crossing}A row has one input fewer than it has tokens: its last is only predicted.",
        ),
        Table(
            "Left over by epoch, in no batch",
            ("Epoch", "Rows", "Of the rows", "Inputs", "Of the inputs", "Rows skipped"),
            [
                (
                    name,
                    item.rows_left,
                    Percent.ratio(item.rows_left, item.rows + item.rows_left),
                    item.inputs_left,
                    Percent.ratio(item.inputs_left, item.inputs + item.inputs_left),
                    item.rows_skipped,
                )
                for name, item in named
            ],
            "Skipped rows are in neither share.",
        ),
    ]


def _balances(preview: TrainingPreview, config: InspectConfig) -> Table:
    return Table(
        "Balance of the ranks",
        ("balance=", "Inputs", "Length²", "Attention work", "Attention work of the worst batch"),
        [
            (_named(name, config), *(round(item.overall[cost], 3) for cost in COSTS), round(item.worst[_WORK], 3))
            for name, item in preview.imbalance.items()
        ],
        "What the busiest rank has, in means over the ranks: 1 is even. At every batch the others wait for it. "
        "The global batches are the same.",
    )


def _ranks(preview: TrainingPreview) -> Table:
    spreads = {"Rows": preview.rank_rows, "Inputs": preview.rank_inputs}
    return Table(
        "A rank's batch",
        ("", "Least", "Median", "Most"),
        [(name, *(item.at(share) for share in (0, 0.5, 1))) for name, item in spreads.items()],
        f"Over all batches and ranks; a rank has {preview.world.slots:,} slots.",
    )


def _by_share(shares: NDArray[np.float64]) -> list[tuple[str, int]]:
    """Count the shares between round ones, as fine as there is room for; much lower ones are counted together."""
    low = float(np.quantile(shares, 0.05))
    steps = (base * 10.0**power for power in range(-4, 0) for base in (1, 2, 5))
    step = next((step for step in steps if (1 - low) / step <= _BINS), 0.1)
    count = min(_BINS, max(1, math.ceil((1 - low) / step)))
    edges = 1 - step * np.arange(count, 0, -1)
    digits = max(0, -math.floor(math.log10(step) + 1e-9) - 2)
    numbers = np.bincount(np.searchsorted(edges, shares + 1e-12, side="right"), minlength=count + 1).tolist()
    labels = [f"< {edges[0]:.{digits}%}", *(f"≥ {edge:.{digits}%}" for edge in edges)]
    result = list(zip(labels, numbers, strict=True))
    return result if numbers[0] else result[1:]
