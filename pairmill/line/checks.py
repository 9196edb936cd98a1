"""Refuses before the first stage what any stage would refuse: all at once, a line each, by the stages' own readers."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from pairmill import storage
from pairmill.address import is_address
from pairmill.engine.options import Profile
from pairmill.errors import Attempts, StorageError, UsageError
from pairmill.mixture.reading import load_mixture
from pairmill.policy import in_force
from pairmill.rules import DEFAULT_FILE
from pairmill.rules.book import ReferenceRules, Rules
from pairmill.sources.files.raw import RawFolder
from pairmill.sources.origin import Folder
from pairmill.sources.source import Source
from pairmill.stages.clean.sink import task_of
from pairmill.stages.curate import core as curate
from pairmill.stages.fetch import core as fetch
from pairmill.stages.sample.config import held_out_path
from pairmill.stages.sample.node.folder import Node
from pairmill.stages.sample.node.space import free_bytes, require_space
from pairmill.stages.select import core as select
from pairmill.stages.tokenize import chats
from pairmill.storage.writable import require_writable

Wanted: TypeAlias = Mapping[str, tuple[Source, RawFolder | None]]
LEAST: Final = 10
"""Results take a tenth of the raw files at the very least; ``dry_run=true`` says how much they take."""


def check(values: Mapping[str, Any], configs: Mapping[str, Any], without: Collection[str]) -> Wanted:
    """Refuse what cannot end well on this machine; return the sources, with their raw files if these are there.

    Args:
        values: the parameters, places made absolute.
        configs: the options of every stage, by name.
        without: stages that have nothing to do.

    Raises:
        PairmillError: one thing is wrong.
        Refusals: several are.
    """
    attempts = Attempts()
    wanted: Wanted = {}
    with attempts.each(), in_force(configs["fetch"]):
        wanted = fetch.check(configs["fetch"])
    folders = [folder for _, folder in wanted.values() if folder is not None]
    size = sum(sum(folder.sizes.values()) for folder in folders)
    below = (folder.uri for source, folder in wanted.values() if folder is not None and _reads_below(source))
    inside = list(dict.fromkeys([values["raw"], *below]))
    with attempts.each():
        _check_root(values["root"], inside, size // LEAST)
    for path in dict.fromkeys(_output_paths(values)):
        with attempts.each():
            _check_output(path, inside, size // LEAST)
    for name, stage in (("curate", curate), ("select", select)):
        with attempts.each():
            if name not in without:
                stage.check(configs[name])
    with attempts.each():
        if "tokenize" not in without:
            given = values["tokenizer"] if not is_address(values["tokenizer"]) else ""
            if given or not values["tokenizer"]:
                renderings = {name: source.rendering for name, (source, _) in wanted.items() if source.rendering}
                chats.check(configs["tokenize"], given, configs["train_tokenizer"].special_tokens, renderings)
    with attempts.each():
        if values["compare"] and "mix" not in without:
            load_mixture(values["compare"], "compare")
    with attempts.each():
        _check_rules(values, wanted)
    with attempts.each():
        if "train" in configs:
            configs["train"].settings  # noqa: B018 - reads the file
    attempts.refuse()
    return wanted


def _reads_below(source: Source) -> bool:
    """Return whether a source reads whatever is below its folder; one file, or one folder, leaves room beside it."""
    return not isinstance(source.origin, Folder) or any("**" in pattern for pattern in source.origin.files)


def _output_paths(values: Mapping[str, Any]) -> list[str]:
    path = values["output_path"]
    return [path, held_out_path(path)][: 1 + bool(values["holdout"])] if path else []


def _check_root(root: str, raws: Collection[str], least: int) -> None:
    _refuse_inside("root", root, raws)
    if storage.scheme(root) != "file":
        try:
            storage.store_for(root).folders(root)
        except StorageError as error:
            raise error.moved(f"root={root}") from error
        return
    path = storage.local_path(root)
    require_writable("root", path, path)
    if not (path.exists() and any(path.iterdir())):
        require_room(path, least)


def require_room(root: Path, needed: int) -> None:
    """Raise StorageError unless results of ``needed`` bytes fit below the root."""
    existing, free = free_bytes(root)
    if needed > free:
        raise StorageError(
            "no space left for the results",
            where=f"root={root}",
            got=f"{free:,} bytes free in {existing}",
            expected=f"{needed:,} bytes or more",
            hint="free space, or write root=<a folder of a larger disk>; dry_run=true says how much a run takes",
        )


def _check_output(path: str, raws: Collection[str], least: int) -> None:
    _refuse_inside("output_path", path, raws)
    node = Node(path, "0" * 16)
    node.refuse_other_files()
    # Beside it: the arrays that are there may be training right now.
    require_writable("output_path", node.target, node.target.parent)
    if not node.target.exists():
        require_space(node.target, least, 0)


def _refuse_inside(option: str, place: str, raws: Collection[str]) -> None:
    """Raise UsageError if results would be among the raw files, where the next run would read them."""
    for raw in filter(None, raws):
        if place == raw or place.startswith(f"{raw}/"):
            raise UsageError(
                "is inside the raw files, of which the next run would read it as one",
                where=option,
                got=place,
                expected=f"a folder outside {raw}",
                hint=f"write {option}={storage.parent_of(raw)}/{storage.name_of(place) if place != raw else 'project'}",
            )


def _check_rules(values: Mapping[str, Any], wanted: Wanted) -> None:
    """Refuse rules that cannot be read, and those of which none is about a task of this run."""
    given, profile = values["prefix_config_path"], values["profile"]
    if given == DEFAULT_FILE:
        return
    rules = Rules.load(given, profile, "prefix_config_path")
    tasks = [] if values["rows"] or isinstance(rules, ReferenceRules) else _tasks(wanted, profile)
    if tasks and rules.clauses and len(rules.idle(tasks)) == len(rules.clauses):
        raise UsageError(
            "none of the rules is about a task of this run",
            where=f"prefix_config_path={given}",
            got=", ".join(clause.who.label for clause in rules.clauses[:5]),
            expected=f"the beginning of one of {', '.join(tasks[:5])}",
            hint=f"write - prefix: {tasks[0]}, or leave prefix_config_path= out",
        )


def _tasks(wanted: Wanted, profile: Profile) -> list[str]:
    """Return the names of all tasks; none if those of a source follow from its records, or from what is fetched."""
    result: list[str] = []
    for source, folder in wanted.values():
        if folder is None:
            return []
        for unit in source.units(folder.listed(), folder.card(), profile, source.options()):
            if unit.files and "{}" in unit.output:
                return []
            result += [task_of(unit.output)] if unit.files else []
    return sorted(filter(None, result))
