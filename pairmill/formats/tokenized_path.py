"""``tokenized_path=``: the tokenized folders that it names, opened as one.

Each is ``[name=]place``. A place is a tokenized folder, a plan of sample (the folder that it was drawn from), or a
union: a folder with a manifest and no arrays, which says which task of which folder is called what.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from pairmill import storage
from pairmill.address import refuse
from pairmill.digest import digest_bytes
from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import MANIFEST, File, InputRef, Ledger, Manifest
from pairmill.errors import InputError, UsageError
from pairmill.formats.results.tokens import UnionResult
from pairmill.formats.tokenized import UNION, Folder, Opening, open_folder
from pairmill.formats.tokenizer_file import NAME as TOKENIZER
from pairmill.formats.tokens import INFO, Dataset

if TYPE_CHECKING:
    from pairmill.formats.union import Union

_VERSION: Final = 1
_TOKENIZE: Final = "tokenize"
_TOKENIZED: Final = "tokenized"
_SAMPLE: Final = "sample"
_OPTION: Final = "tokenized_path"
_NAMED: Final = re.compile(r"([A-Za-z0-9][\w.-]*)=(.+)", re.DOTALL)
_BELOW: Final = "./"
"""How the place of a folder begins that is in the project of the union."""


class Place(NamedTuple):
    """A folder that is named. ``is_named``: its name was given, and is not that of the folder."""

    name: str
    uri: str
    is_named: bool = False


def open_tokenized(
    given: str,
    option: str,
    *,
    tolerate_strays: bool = True,
    verify: bool = False,
    held_out: bool = False,
    tasks: str = "",
) -> Folder:
    """Open what an option names as one folder.

    Args:
        given: ``[name=]place``, several joined by commas.
        option: its name, for messages.
        tolerate_strays, verify, held_out: see :class:`Opening`.
        tasks: a file that says which tasks are taken, and what rules call them; empty = all, by their own names.

    Raises:
        InputError: a folder is absent, unfinished or damaged, or has no data set or no held-out rows; or they do not
            belong together.
        UsageError: the file is for other tasks.
    """
    how = Opening(option, tolerate_strays, verify, held_out)
    some = places(given, option)
    if len(some) == 1 and not tasks:
        return open_place(some[0].uri, how)
    return join(some, tasks, how).folder(",".join(place.uri for place in some), option, held_out)


def join(some: Sequence[Place], tasks: str, how: Opening) -> Union:
    """Open folders, and join the tasks that a file says."""
    # Most names are of one folder, and what joins several is a twentieth of a start.
    from pairmill.formats import union

    file = union.TasksFile.load(tasks, [place.name for place in some])
    parts = [union.Part(place.name, open_place(place.uri, how._replace(held_out=None))) for place in some]
    return union.Union.join(parts, file, f"{how.option}={','.join(place.uri for place in some)}")


def places(given: str, option: str) -> list[Place]:
    """Read ``[name=]place,…``; a comma in a place is written ``\\\\,`` unless the whole is a folder that is there.

    Raises:
        UsageError: a place is empty or an address that only fetch reads, or two have one name.
    """
    refuse(given, option, fetch="tokenized")
    whole = "," not in given or _is_folder(given)
    result: list[Place] = []
    for text in [given] if whole else re.split(r"(?<!\\),", given):
        text = text if whole else text.replace("\\,", ",").strip()
        match = None if _is_folder(text) else _NAMED.fullmatch(text)
        name, place = (match[1], match[2]) if match else ("", text)
        refuse(place, option, fetch="tokenized")
        uri = storage.normalise(place, option)
        result.append(Place(name or storage.name_of(uri), uri, bool(name)))
    counts, seen = Counter(place.name for place in result), Counter[str]()
    for number, place in enumerate(result):
        if counts[place.name] > 1 and place.is_named:
            hint = "give each its own: tokenized_path=base=<folder>,new=<folder>"
            raise UsageError("two folders have one name", where=option, got=place.name, hint=hint)
        if counts[place.name] > 1:
            seen[place.name] += 1
            result[number] = place._replace(name=f"{place.name}-{seen[place.name]}")
    return result


def _is_folder(text: str) -> bool:
    return "://" not in text and os.path.isdir(os.path.expanduser(text))


def open_place(uri: str, how: Opening) -> Folder:
    """Open one place: a tokenized folder, a plan, or a union."""
    return _open(uri, manifests.read_intact(uri, look=False), how)


def _open(uri: str, manifest: Manifest | None, how: Opening) -> Folder:
    if manifest is not None and manifest.stage == _SAMPLE:
        return open_place(_tokens_of_plan(uri, manifest, how.option), how)
    if manifest is not None and manifest.stage == UNION:
        return _open_union(uri, manifest, how)
    return open_folder(uri, manifest, how)


def _tokens_of_plan(uri: str, manifest: Manifest, option: str) -> str:
    fingerprint = next((ref.fingerprint for ref in manifest.inputs if ref.role == _TOKENIZED), "")
    root = storage.parent_of(storage.parent_of(uri))
    result = stored(root, fingerprint)
    if result is None:
        raise InputError(
            "the tokenized folder of the plan is missing",
            where=f"{option}={uri}",
            expected=storage.join(root, _TOKENIZE, fingerprint),
            hint=f"name the folder if it is elsewhere: {option}=…",
        )
    return result


def stored(root: str, fingerprint: str) -> str | None:
    """Return the tokenized folder, or the union, of a project that has this fingerprint; None if there is none."""
    for stage in (_TOKENIZE, UNION):
        uri = storage.join(root, stage, fingerprint)
        if manifests.read(uri, refuse_begun=False) is not None:
            return uri
    return None


def _open_union(uri: str, manifest: Manifest, how: Opening) -> Folder:
    result = UnionResult.from_manifest(manifest)
    folders = [
        open_place(place, how._replace(held_out=None, option=f"{how.option}={uri}: {name}"))
        for name, place in _places_of(uri, result).items()
    ]
    for folder, item in zip(folders, result.folders, strict=True):
        if folder.fingerprint != item["fingerprint"]:
            raise InputError(
                "a folder of the union is not what it was",
                where=f"{how.option}={uri}: {item['name']}={folder.uri}",
                got=folder.fingerprint,
                expected=item["fingerprint"],
                hint="make the union again: pairmill tokenize union tokenized_path=… to=…",
            )
    tasks = []
    for folder, item in zip(folders, result.folders, strict=True):
        known = {task.name: task for task in folder.tasks}
        for name, own in item["tasks"].items():
            if how.wants(name):
                tasks.append(known[own] if own == name else replace(known[own], name=name))
    tasks.sort(key=lambda task: task.name)
    if not tasks:
        raise InputError("the union has no such rows", where=f"{how.option}={uri}", got="held_out=true")
    info = json.loads(manifests.read_file(uri, manifest, INFO))
    return Folder(
        uri,
        tasks,
        info,
        manifest.fingerprint,
        sum(task.counts[0] for task in tasks) if all(folder.rows is not None for folder in folders) else None,
        tokenizer=next((folder.tokenizer for folder in folders if folder.tokenizer), ""),
        homes=(uri, *(home for folder in folders for home in folder.homes)),
        sampled=any(folder.sampled for folder in folders),
    )


def _places_of(uri: str, union: UnionResult) -> dict[str, str]:
    """Return where the folders of a union are, by name."""
    root = storage.parent_of(storage.parent_of(uri))
    return {
        item["name"]: storage.join(root, item["place"].removeprefix(_BELOW))
        if item["place"].startswith(_BELOW)
        else item["place"]
        for item in union.folders
    }


def keep_union(folder: Folder, root: str) -> str:
    """Write a union below a project, where nodes find it; return its URI. Of one folder there is nothing to write."""
    return write_union(folder, storage.join(root, UNION, folder.fingerprint), root) if folder.union is not None else ""


def write_union(folder: Folder, uri: str, root: str = "") -> str:
    """Write a union: its manifest, ``tokenizer_info.json`` and the tokenizer. One that is there gets its new places.

    Args:
        folder: of several folders.
        root: the project; places below it are written relative to it.
    """
    assert folder.union is not None
    top = f"{storage.normalise(root, 'root')}/" if root else ""
    # A name that is escaped in a URI would be escaped again.
    below = re.compile(f"^{re.escape(top)}(?!.*%)" if top else "(?!)")
    folders = [{**item, "place": below.sub(_BELOW, item["place"])} for item in folder.union.folders]
    files = {INFO: json.dumps(folder.info, separators=(",", ":"), ensure_ascii=False).encode()}
    homes = (storage.join(home, TOKENIZER) for home in folder.homes)
    tokenizer = next((home for home in homes if storage.store_for(home).exists(home)), None)
    if tokenizer is not None:
        files[TOKENIZER] = storage.store_for(tokenizer).read(tokenizer)
    rows = folder.rows or sum(task.counts[0] for task in folder.tasks)
    inputs = [InputRef(_TOKENIZED, item["fingerprint"], _TOKENIZE) for item in folders]
    if folder.tokenizer:
        inputs.append(InputRef("tokenizer", folder.tokenizer))
    manifest = Manifest(
        stage=UNION,
        version=_VERSION,
        fingerprint=folder.fingerprint,
        options={},
        inputs=inputs,
        ledger=Ledger(rows, rows, rows),
        files=[File(name, len(data), digest_bytes(data)) for name, data in files.items()],
        data=replace(folder.union, folders=folders).to_data(),
    )
    store = storage.store_for(uri)
    for name, data in {**files, MANIFEST: manifest.dump()}.items():
        place = storage.join(uri, name)
        if not store.exists(place) or store.read(place) != data:
            store.write(place, data)
    return uri


def find_planned(given: str, root: str, fingerprint: str, names: Sequence[str], *, digested: bool) -> list[Dataset]:
    """Find the tokens of a plan's data sets.

    Args:
        given: ``tokenized_path=`` of the node: the folder, or of a union those folders that are elsewhere here; empty =
            all is where the project says.
        fingerprint: of the folder, or of the union, that the plan was drawn from.
        digested: digest what no manifest promises, as the plan has no digests of its own.

    Raises:
        InputError: a folder is missing, or is another one.
    """
    some, home = places(given, _OPTION) if given else [], stored(root, fingerprint)
    single = some[0].uri if len(some) == 1 else ""
    at = manifests.read(single) if single else None
    if single and not some[0].is_named and (at is None or at.fingerprint == fingerprint or home is None):
        home = single
    elif some and (home is None or storage.name_of(storage.parent_of(home)) != UNION):
        folder = open_tokenized(given, _OPTION)
        if folder.fingerprint != fingerprint:
            hint = f"of several folders the node needs the union too: {storage.join(root, UNION, fingerprint)}"
            raise _other_folder(f"{_OPTION}={given}", folder.fingerprint, fingerprint, hint if len(some) > 1 else "")
        return _picked({task.name: task for task in folder.tasks}.get, names, given)
    if home is None:
        raise InputError(
            "the tokenized folder of the plan is missing",
            where=storage.join(root, _TOKENIZE, fingerprint),
            hint=f"name the folder if it is elsewhere: {_OPTION}=…",
        )
    manifest = manifests.read(home)
    if manifest is None or manifest.stage != UNION:
        return _picked(_tasks_at(home, fingerprint, digested), names, home)
    if manifest.fingerprint != fingerprint:
        raise _other_folder(f"{_OPTION}={home}", manifest.fingerprint, fingerprint)
    union = UnionResult.from_manifest(manifest)
    here = _moved(_places_of(home, union), [] if single == home else some, union)
    located: dict[str, Dataset] = {}
    for item in union.folders:
        mine = {name: item["tasks"][name] for name in names if name in item["tasks"]}
        if mine:
            find = _tasks_at(here[item["name"]], item["fingerprint"], digested)
            tasks = {name: task for name, own in mine.items() if (task := find(own)) is not None}
            located |= {name: replace(task, name=name) for name, task in tasks.items()}
    return _picked(located.get, names, home)


def _tasks_at(uri: str, fingerprint: str, digested: bool) -> Callable[[str], Dataset | None]:
    """Return what finds a task of a place by its name there."""
    manifest = manifests.read(uri)
    if manifest is None and not digested:
        # Nothing is known of it. What is made of its tokens is compared with the plan.
        return lambda own: Dataset(own, storage.join(uri, own))
    if manifest is not None and manifest.stage != _SAMPLE and manifest.fingerprint != fingerprint:
        raise _other_folder(f"{_OPTION}={uri}", manifest.fingerprint, fingerprint)
    folder = _open(uri, manifest, Opening(_OPTION, held_out=None))
    if folder.fingerprint != fingerprint:
        raise _other_folder(f"{_OPTION}={uri}", folder.fingerprint, fingerprint)
    return {task.name: task for task in folder.tasks}.get


def _moved(here: dict[str, str], some: Sequence[Place], union: UnionResult) -> dict[str, str]:
    """Return the places of a union's folders, with those that a node gives in place of theirs."""
    known = {item["fingerprint"]: item["name"] for item in union.folders}
    for place in some:
        manifest = None if place.is_named else manifests.read(place.uri)
        name = place.name if place.is_named or manifest is None else known.get(manifest.fingerprint, "")
        if name not in here:
            raise InputError(
                "not a folder of the plan's union",
                where=f"{_OPTION}={place.uri}",
                expected=", ".join(f"{name}=…" for name in here),
                hint="write the name of the folder that it replaces: <name>=…",
            )
        here = {**here, name: place.uri}
    return here


def _picked(find: Callable[[str], Dataset | None], names: Sequence[str], where: str) -> list[Dataset]:
    result = [task for name in names if (task := find(name)) is not None]
    if len(result) < len(names):
        lacking = next(name for name in names if find(name) is None)
        raise InputError("lacks a task of the plan", where=f"{_OPTION}={where}", got=f"no {lacking!r}")
    return result


def _other_folder(where: str, got: str, expected: str, hint: str = "") -> InputError:
    return InputError("the plan was made from another folder", where=where, got=got, expected=expected, hint=hint)
