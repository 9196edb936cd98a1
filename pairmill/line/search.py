"""Searches a mixture: ``pairmill search tokenized=… held_out=… root=… train_config=… [option=value …]``.

Mixtures are drawn, a proxy is trained and evaluated on each, a law is fitted, and its best mixture is trained and
evaluated too. On this machine each task is a process; compiled, each is a task of Kubeflow, and proxies are a loop.
Every task has a content key: a search that is killed and started again goes on, and ends in the same bytes.
"""

import dataclasses
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pairmill import storage
from pairmill.engine.options import list_item, option
from pairmill.errors import UsageError
from pairmill.extras import require
from pairmill.fields import Checked
from pairmill.interface import cli
from pairmill.line.parameters import parameter
from pairmill.line.runs import (
    MEMORY,
    TRAINED_PLACE,
    Ended,
    Here,
    MadeRun,
    SharedOptions,
    StageRun,
    Task,
    arrays,
    remove,
    train_and_evaluate,
)
from pairmill.log import event
from pairmill.mixture.reading import load_mixture
from pairmill.stages.evaluate.config import EvaluateConfig
from pairmill.stages.search.config import SearchConfig
from pairmill.stages.train.config import TrainConfig
from pairmill.stages.train.data.inputs import open_inputs
from pairmill.stages.train.data.steps import total_steps

MAX_RUNS: Final = 12
"""With more the workflow object of a run would pass 1 MiB (docs/decisions/0049-weight-of-a-run.md)."""
_ALL: Final = 1_000_000
"""Older samples that stay: those beside a proxy's are other proxies', which are training on them."""


@dataclass(kw_only=True)
class Parameters(Checked):
    """Search the mixture of sources that loses least on held-out rows, by small trainings."""

    root: str = parameter(SearchConfig, "root")
    tokenized: str = option(help="tokenized folder or URI, whose sources are mixed")
    held_out: str = option(help="plan or sampled folder of held-out rows, on which every proxy is evaluated")
    train_config: str = option(help="net, optimizer, schedule and length of a proxy, as a YAML file")
    train_set: str = option("", help="settings in place of the file's, as optimizer.lr=0.001,training.steps=200")
    mix_config: str = parameter(SearchConfig, "mix_config")
    search_config: str = parameter(SearchConfig, "search_config")
    runs: int = parameter(SearchConfig, "runs")
    max_runs: int = option(
        MAX_RUNS, help="refuse more runs than this; of more Kubeflow shows no task to its end; 0 = any number"
    )
    set: str = parameter(SearchConfig, "set")
    earlier: str = parameter(SearchConfig, "earlier")
    rows: str = parameter(SearchConfig, "rows")
    prefix_config_path: str = parameter(SearchConfig, "prefix_config_path")
    epochs: int = parameter(SearchConfig, "epochs")
    context_size: int = parameter(SearchConfig, "context_size")
    min_resp_length: int = parameter(SearchConfig, "min_resp_length")
    seed: int = parameter(SearchConfig, "seed")
    policy: str = parameter(SearchConfig, "policy")
    policy_on: str = parameter(SearchConfig, "policy_on")
    evaluate_config: str = parameter(EvaluateConfig, "evaluate_config")
    evaluate_set: str = option(
        "net.weights=ema", help="settings in place of that file's; all proxies by the same weights, the average or not"
    )


@dataclass(frozen=True)
class Proxy:
    """A run of the search: its plan, training and evaluation."""

    sampled: StageRun
    made: MadeRun


_CHECKED_FIRST: Final = ("max_runs", "train_config", "train_set", "evaluate_config", "evaluate_set")
"""What every training and evaluation would refuse is refused by the first task."""


def stage(task: Task, given: Any, **results: Any) -> StageRun:
    """Run the stage search, with the results that there are: see pairmill/stages/search/core.py."""
    own = own_options(given)
    if results:
        own = {name: value for name, value in own.items() if name not in _CHECKED_FIRST}
    return task("search", **own, **results)


def refuse(given: Parameters) -> None:
    """Raise UsageError for options that the pipeline's first task would refuse."""
    cli.build(SearchConfig, own_options(given))


def own_options(given: Any) -> dict[str, Any]:
    """Return the parameters that are options of the stage search."""
    own = {item.name for item in dataclasses.fields(SearchConfig)}
    names = [item.name for item in dataclasses.fields(Parameters) if item.name in own]
    return {"tokenized_path": given.tokenized, **{name: getattr(given, name) for name in names}}


def draw(task: Task, given: Any, mixture: Any, output_path: str = "") -> StageRun:
    """Draw the rows of a mixture: arguments as of :func:`proxy`."""
    return task(
        "sample",
        root=given.root,
        tokenized_path=given.tokenized,
        mixture=mixture,
        output_path=output_path,
        keep=_ALL,
        prefix_config_path=given.prefix_config_path,
        context_size=given.context_size,
        min_resp_length=given.min_resp_length,
        policy=given.policy,
        policy_on=given.policy_on,
    )


def proxy(task: Task, given: Any, mixture: Any, output_path: str = "") -> Proxy:
    """Draw the rows of a mixture, train on them, and evaluate.

    Args:
        task: executes stages.
        given: parameters.
        mixture: of the proxy.
        output_path: folder of this machine for the arrays; empty = what trains makes them of the plan, for itself.
    """
    sampled = draw(task, given, mixture, output_path)
    # The tokens may be of another project, and evaluate needs their tokenizer.
    shared = SharedOptions.from_values(given, tokenizer=given.tokenized, samples_path=output_path or TRAINED_PLACE)
    data = output_path.format(fingerprint=sampled.outputs["fingerprint"]) if output_path else sampled.output
    return Proxy(sampled, train_and_evaluate(task, data, given.train_set, shared))


@dataclass(kw_only=True)
class LocalConfig(Parameters):
    """Search the mixture of sources that loses least on held-out rows, by small trainings on this machine."""

    max_runs: int = option(0, help="refuse more runs than this; 0 = any number")
    at_once: int = option(0, help="proxies that are trained at the same time; 0 = one for each core", at_least=0)
    samples_path: str = option(
        "", help=f"folder for the arrays of proxies, which are removed; empty = one in {MEMORY}, if it is there"
    )


@dataclass
class FinishedSearch:
    """What a search on this machine found: the folder of the stage, and every task that ended."""

    folder: str
    ended: list[Ended]


def run(config: LocalConfig, here: Here | None = None) -> FinishedSearch:
    """Search on this machine.

    Args:
        here: executes the tasks; None = processes.

    Raises:
        RunFailure: a task failed. The same command goes on with what is missing.
    """
    given = dataclasses.replace(config, **_placed(config))
    here = here or Here(given.at_once, _show)
    with arrays(given.samples_path, "search", given.root) as place:

        def measure(mixture: str) -> Proxy:
            made = proxy(here, given, mixture, place)
            remove(place.replace("{fingerprint}", made.sampled.outputs["fingerprint"]))
            return made

        drawn = stage(here, given)
        mixtures = [item["mixture"] for item in drawn.outputs["mixtures"]]
        refuse_short(here, given, mixtures, place)
        made = here.each(measure, mixtures)
        results = {
            "sampled": [each.sampled.output for each in made],
            "evaluated": [each.made.evaluated.output for each in made],
        }
        result = stage(here, given, **results)
        best = measure(result.outputs["optimum"])
        last = stage(here, given, **results, measured=best.made.evaluated.output)
    return FinishedSearch(last.output, here.ended)


def refuse_short(here: Here, given: LocalConfig, mixtures: Sequence[str], place: str) -> None:
    """Raise UsageError if a mixture has fewer steps or tokens than a proxy reads, before any proxy is trained.

    The rows of a mixture are drawn for it, and counted in batches by the trainer's own plan, unless the mixture has
    enough by its budget: a row has at least as many inputs as response tokens.
    """
    options = {"root": given.root, "train_config": given.train_config, "set": given.train_set, "processes": "1"}
    config = cli.build(TrainConfig, options)
    settings, asked = config.settings, config.settings.training
    slots = settings.batch.tokens

    def count(mixture: str) -> None:
        made = draw(here, given, mixture, place)
        folder = place.replace("{fingerprint}", made.outputs["fingerprint"])
        try:
            total_steps(open_inputs(dataclasses.replace(config, sampled=[folder]), settings), settings, 1)
        except UsageError as error:
            where = f"train_set {error.where}, for {mixture}"
            raise UsageError(error.what, where=where, got=error.got, expected=error.expected, hint=_SHORTER) from error
        finally:
            remove(folder)

    def is_enough(mixture: str) -> bool:
        plan = load_mixture(mixture)
        wanted = (asked.steps * slots or asked.tokens) + (plan.epochs + 1) * slots
        return wanted <= plan.budget - plan.unfilled

    if asked.steps or asked.tokens:
        here.each(count, [item for item in mixtures if not is_enough(item)])


_SHORTER: Final = "lower it, or raise the budget of the proxies: search_config proxy_budget, mix_config budget"

_PLACES: Final = (
    *("root", "tokenized", "held_out", "train_config", "mix_config", "search_config"),
    *("earlier", "prefix_config_path", "evaluate_config", "policy"),
)


def _placed(config: LocalConfig) -> dict[str, Any]:
    """Relative places as absolute ones. A default file may be absent, and one that is given may not: it stays."""
    defaults = {item.name: item.default for item in dataclasses.fields(Parameters)}
    result: dict[str, Any] = {}
    for name in _PLACES:
        value = getattr(config, name)
        if value and value != defaults[name]:
            result[name] = storage.normalise(value, name)
    if config.rows:
        result["rows"] = ",".join(list_item(storage.normalise(item, "rows")) for item in cli.split_list(config.rows))
    return result


def _show(ended: Ended) -> None:
    state = "failed" if ended.exit_code else "reused" if ended.reused else "made"
    level = logging.ERROR if ended.exit_code else logging.INFO
    event(f"{ended.stage}: {state} in {ended.seconds:.1f} s {ended.folder}".rstrip(), level=level, stage=ended.stage)


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""

    def work() -> None:
        config = cli.build(LocalConfig, cli.split(arguments))
        require("train", "torch", where="train_config")
        result = run(config)
        reused = sum(ended.reused for ended in result.ended)
        lines = [
            f"  {len(result.ended)} tasks, {reused} of them reused",
            f"  mixture: {result.folder}/mixture.json",
            f"  report: {result.folder}/report.html",
        ]
        sys.stdout.write("\n".join(lines) + "\n")

    return cli.program("search", LocalConfig, arguments, work)
