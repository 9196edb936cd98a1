"""Which source has which task."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from pairmill.engine.source_names import source_of
from pairmill.errors import UsageError, did_you_mean
from pairmill.mixture.settings import MixSettings
from pairmill.rules.match import Matcher, Selector, literal_of


@dataclass(frozen=True)
class Grouping:
    """The sources.

    Attributes:
        sources: the tasks of each source, sorted, in the order of the settings.
        bucketed: the tasks whose rows are put into buckets, sorted.
        buckets: the names of buckets by code; empty without.
        left: the tasks of which nothing is drawn, sorted.
        denied: sources of which a policy leaves out all tasks.
    """

    sources: dict[str, list[str]]
    bucketed: list[str]
    buckets: list[str]
    left: list[str]
    denied: tuple[str, ...] = ()

    def without(self, denied: Set[str]) -> Grouping:
        """Return it with nothing drawn of some tasks."""
        sources = {name: [task for task in tasks if task not in denied] for name, tasks in self.sources.items()}
        return Grouping(
            {name: tasks for name, tasks in sources.items() if tasks or not self.sources[name]},
            [task for task in self.bucketed if task not in denied],
            self.buckets,
            sorted({*denied, *self.left}),
            tuple(name for name, tasks in sources.items() if self.sources[name] and not tasks),
        )


def group(settings: MixSettings, tasks: Sequence[str], denied: Set[str] = frozenset()) -> Grouping:
    """Give each task its source.

    Args:
        tasks: names, sorted.
        denied: those of them that a policy leaves out; they need no source.

    Raises:
        UsageError: two sources have one task, a source or the buckets have none, or a task has no source.
    """
    result: dict[str, list[str]] = {item.name: [] for item in settings.sources}
    buckets = settings.buckets.names() if settings.buckets.attributes else []
    bucketed, rest = [], []
    names = [item.name for item in settings.sources]
    shared = settings.buckets.selector if buckets else None
    matcher = Matcher([*(item.selector or Selector() for item in settings.sources), shared or Selector()])
    for task in tasks:
        owners = [names[number] for number in matcher.numbers(task) if number < len(names)]
        in_buckets = len(names) in matcher.numbers(task)
        if len(owners) + in_buckets > 1:
            both = [*map(repr, owners), *(["buckets"] if in_buckets else [])]
            raise UsageError(
                f"two sources have the task {task!r}",
                where="mix_config sources",
                got=" and ".join(both),
                expected="one source for each task",
                hint="make a prefix longer, or leave it out of one with not:",
            )
        if owners:
            result[owners[0]].append(task)
        elif in_buckets or (buckets and shared is None):
            bucketed.append(task)
        else:
            rest.append(task)
    _refuse_empty(settings, tasks)
    if buckets and not bucketed:
        got = shared.label if shared else "none that no source has"
        raise UsageError("the buckets have no task", where="mix_config buckets", got=got)
    plain = not settings.sources and not buckets
    own: dict[str, list[str]] = {}
    for task in rest:
        own.setdefault(source_of(task), []).append(task)
    if plain and rest and settings.others == "leave":
        shown = ", ".join(sorted(own)[:20]) + (" …" if len(own) > 20 else "")
        raise UsageError(
            "there is no source: others: leave leaves all tasks out",
            where="mix_config sources",
            expected=f"[{{name, prefixes}}, …], or others: sources, which makes these: {shown}",
        )
    if not rest or settings.others == "leave":
        return Grouping(result, bucketed, buckets, rest).without(denied)
    lacking = [task for task in rest if task not in denied]
    if not plain and settings.others == "error" and lacking:
        raise UsageError(
            f"{len(lacking):,} tasks have no source" if len(lacking) > 1 else "a task has no source",
            where="mix_config sources",
            got=", ".join(map(repr, lacking[:5])) + (" …" if len(lacking) > 5 else ""),
            expected="a source for each task",
            hint="add a source, or set others: sources, or others: leave, which does not sample them",
        )
    for name in own:
        if name in result or name in buckets:
            raise UsageError(
                f"a source of others has the name of yours, {name!r}",
                where="mix_config sources",
                got=", ".join(map(repr, own[name][:3])),
                hint="rename the source, or add a prefix to it",
            )
    return Grouping({**result, **dict(sorted(own.items()))}, bucketed, buckets, []).without(denied)


def _refuse_empty(settings: MixSettings, tasks: Sequence[str]) -> None:
    """Refuse a source of which one prefix, glob or expression matches no task."""
    for number, item in enumerate(settings.sources, 1):
        whole = item.selector or Selector()
        texts = [("prefixes", Selector(prefixes=(text,))) for text in whole.prefixes]
        texts += [("match", Selector(globs=(text,))) for text in whole.globs]
        texts += [("re", Selector(regex=whole.regex))] if whole.regex else []
        matcher = Matcher([text for _, text in texts])
        used = {place for task in tasks for place in matcher.numbers(task)}
        for place, (key, text) in enumerate(texts):
            if place not in used:
                known = sorted({name for task in tasks for name in (task, task.split("__", 1)[0])})
                what = f"begins with {text.prefixes[0]!r}" if key == "prefixes" else f"matches {text.label!r}"
                raise UsageError(
                    f"no task {what}",
                    where=f"mix_config sources[{number}].{key}, source {item.name!r}",
                    expected=f"the beginning of a task's name, such as {min(tasks)!r}" if tasks else "",
                    hint=did_you_mean(literal_of(text.label), known),
                )
