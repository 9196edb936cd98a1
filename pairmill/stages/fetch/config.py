"""Options of the fetch stage."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from pairmill import storage
from pairmill.address import FORMS, Address, Kind, parse
from pairmill.engine.options import PolicyRule, RunConfig, option, policy_on_option, policy_option
from pairmill.errors import UsageError
from pairmill.fields import checked_field
from pairmill.formats.settings_file import DEFAULT, SettingsFile
from pairmill.formats.templates import template
from pairmill.rules import DEFAULT_FILE

KINDS: dict[str, tuple[Kind, ...]] = {"rows": ("dataset",), "tokenizer": ("model", "git"), "tokenized": ("dataset",)}
"""What each option that gives finished data takes beside folders and buckets."""


def _forms(option: str) -> list[str]:
    return [f"{option}={FORMS[kind]}" for kind in KINDS[option]]


def _later(
    text: str, default: str = DEFAULT, load: Callable[[str, str], object] = SettingsFile.load, idle_with: str = ""
) -> Any:
    """Make an option that names a file of a later stage, which has nothing to do with the option ``idle_with``."""
    metadata = {"help": text, "changes_bytes": False, "load": load, "idle_with": idle_with}
    return checked_field(default, metadata)


def _load_rules(place: str, name: str) -> object:
    # For a file that is named by a URI alone: it needs numpy, and a help does not.
    from pairmill.rules import book

    return book.read_file(place, name)  # the profile, which says what a rule may have, is sample's


@dataclass(kw_only=True)
class FetchConfig(RunConfig):
    """Bring raw data to the project, at locked revisions, with digests and licences."""

    workers: int = option(
        8, help="downloads at the same time; 0 = one per available core", changes_bytes=False, at_least=0
    )
    sources: list[str] = option(
        [],
        help="sources to fetch, by name or as YAML files that describe one; all = every one that has a folder in raw, "
        "or without raw every known one; empty = all, or none with rows= or tokenized=",
    )
    rows: list[str] = option(
        [],
        help="finished rows in place of sources, or beside those that sources= names: folders, URIs of buckets, "
        "hf://datasets/owner/name@revision/path; joined by commas",
        changes_bytes=False,
    )
    tokenizer: str = option(
        "",
        help="tokenizer in place of a trained one: a tokenizer.json, a folder, the URI of a bucket, "
        "hf://owner/name@revision, or git+https://repository@revision#path",
        changes_bytes=False,
    )
    tokenized: str = option(
        "",
        help="tokenized folder in place of everything before sample: a folder, the URI of a bucket, or "
        "hf://datasets/owner/name@revision/path",
        changes_bytes=False,
        excludes=("rows", "tokenizer", "sources", "raw"),
        hint="tokenized= is what would be made of it: write it alone, or leave it out",
    )
    template: str = option(
        "",
        help="the template of tokenize, whose tokens the tokenizer must have; empty = not checked",
        changes_bytes=False,
        parse=template,
    )
    raw: str = option(
        "",
        help="folder or URI with raw files that you have, one folder per source; they are used as they are",
        changes_bytes=False,
    )
    lock: str = option(
        "",
        help="file with the revision of each source, written at its first fetch; empty = <root>/sources.lock.yaml",
        changes_bytes=False,
    )
    select_config: str = _later("the file of the select stage, looked at if it is a URI", idle_with="tokenized")
    curate_config: str = _later("the file of the curate stage, looked at if it is a URI", idle_with="tokenized")
    mix_config: str = _later("the file of the mix stage, looked at if it is a URI")
    prefix_config_path: str = _later("rules of sample, looked at if they are a URI", DEFAULT_FILE, _load_rules)
    train_config: str = _later("the file of a training, looked at if it is a URI")
    update: list[str] = option(
        [],
        help="sources whose lock is moved to the revision that is published now, or rows, tokenizer, tokenized; "
        "all = every one",
        changes_bytes=False,
    )

    limit: int = option(
        0,
        help="fetch an extract instead: the first this many records of each source; 0 = everything",
        changes_bytes=False,
        at_least=0,
    )
    policy: str = policy_option()
    policy_on: PolicyRule = policy_on_option()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rows and self.raw and not self.sources:
            raise UsageError(
                "would not be read: with rows= only sources that are named are cleaned",
                where="raw",
                got=self.raw,
                hint="write sources=all (or names) to join them to the rows, or leave raw= out",
            )
        if not self.sources and not self.rows and not self.tokenized:
            self.sources = ["all"]
        if self.limit and not self.sources:
            raise UsageError(
                "is of no use: no source is read, and finished data is taken whole",
                where="limit",
                got=str(self.limit),
                hint="leave it out, or name sources= to join",
            )
        self.addresses()

    def addresses(self) -> dict[str, list[tuple[str, Address | None]]]:
        """Return what is given by option: each place, and its address if it is on the Hub or in a git repository.

        Raises:
            UsageError: an address is not valid, or a place is given twice.
        """
        given = {"rows": self.rows, "tokenizer": [self.tokenizer], "tokenized": [self.tokenized]}
        result: dict[str, list[tuple[str, Address | None]]] = {}
        for name, places in given.items():
            for place in filter(None, places):
                if place in [other for other, _ in result.get(name, [])]:
                    raise UsageError("given twice", where=name, got=place, expected="each place once")
                address = parse(place, name, KINDS[name])
                if address is None and storage.scheme(place) not in {"file", *storage.OBJECT_STORES}:
                    raise UsageError(
                        "unknown scheme",
                        where=name,
                        got=place,
                        expected=" or ".join(
                            ["a folder", *(f"{item}://…" for item in storage.OBJECT_STORES), *_forms(name)]
                        ),
                    )
                result.setdefault(name, []).append((place, address))
        return result

    def look_at_settings(self) -> None:
        """Raise UsageError if the file of a later stage is named by a URI and is not there, or not YAML.

        The stage itself would say so, but hours later. A path is one of that stage's own pod.
        """
        for item in fields(self):
            load, place = item.metadata.get("load"), getattr(self, item.name)
            if load and "://" in place and not getattr(self, item.metadata["idle_with"], ""):
                load(place, item.name)
