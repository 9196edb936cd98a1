"""The sources that a run is about: built in, by name, or described by a YAML file."""

from collections.abc import Collection, Iterable, Sequence

from pairmill.engine.conditions import Tag
from pairmill.errors import InputError, UsageError, did_you_mean
from pairmill.sources.datasets import SOURCES
from pairmill.sources.source import Source


def is_file(item: str) -> bool:
    """Return whether an item of ``sources=`` is a YAML file rather than a name."""
    return item.endswith((".yaml", ".yml"))


def named(name: str, files: Sequence[str]) -> Source | None:
    """Return the source of this name, of those that YAML files describe first; None if there is no such source."""
    described = {source.name: source for source in chosen(files, None, raw=None)}
    return described.get(name) or SOURCES.get(name)


def chosen(
    items: Sequence[str], folders: Collection[str] | None, where: str = "raw", raw: str | None = ""
) -> list[Source]:
    """Return the sources that ``sources=`` asks for, in its order.

    Args:
        items: names, YAML files, and ``all``.
        folders: what ``all`` means: the known sources among these names; None = every known one.
        where: where those names were found, for messages.
        raw: as :func:`pairmill.sources.language.mapped.load` takes it.

    Raises:
        UsageError: a name is unknown, a YAML file is not valid, or two sources have the same name.
        InputError: ``all`` is asked for, and the folder has no known source.
    """
    result: dict[str, Source] = {}
    for item in items:
        if item == "all":
            for source in _all(folders, where):
                result.setdefault(source.name, source)
            continue
        if is_file(item):
            # The language of YAML files is a fifth of a start, and a run of named sources needs none of it.
            from pairmill.sources.language.mapped import load

            source = load(item, raw, SOURCES)
            if source.name in result:
                raise UsageError("two sources have the same name", where="sources", got=source.name)
        elif item in SOURCES:
            source = SOURCES[item]
        else:
            raise UsageError(
                "unknown source",
                where="sources",
                got=item,
                expected=f"all, a YAML file, or {', '.join(SOURCES)}",
                hint=did_you_mean(item, SOURCES),
            )
        result[source.name] = source
    return list(result.values())


def tags_asked_for(sources: Iterable[Source]) -> dict[str, Tag]:
    """Return the tags of some sources, by name.

    Raises:
        UsageError: two of them give a tag two tokens, or two tags one.
    """
    result: dict[str, Tag] = {}
    by_token: dict[str, str] = {}
    for source in sources:
        for tag, token in source.tags.items():
            known = result.setdefault(tag, Tag(token, ()))
            if known.token != token:
                raise UsageError(
                    f"two sources give the tag {tag!r} two tokens",
                    where="sources",
                    got=f"{known.token} in {', '.join(known.sources)}, {token} in {source.name}",
                    expected="one token",
                    hint=f"write in {source.described_in}: tags: ['{tag}={known.token}']",
                )
            other = by_token.setdefault(token, tag)
            if other != tag:
                raise UsageError(
                    f"two tags have the token {token!r}",
                    where="sources",
                    got=f"{other} in {', '.join(result[other].sources)}, {tag} in {source.name}",
                    expected="one token for each tag",
                    hint=f"write in {source.described_in}: tags: ['{tag}=<|{tag}|>']",
                )
            result[tag] = Tag(token, (*known.sources, source.name))
    return dict(sorted(result.items()))


def _all(folders: Collection[str] | None, where: str) -> list[Source]:
    if folders is None:
        return [source for source in SOURCES.values() if not source.by_name_only]
    result = [source for name, source in SOURCES.items() if name in folders]
    if not result:
        raise InputError("no folder of a known source", where=where, expected=f"one or more of {', '.join(SOURCES)}")
    return result
