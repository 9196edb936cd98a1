"""Addresses of finished data and tokenizers: ``hf://…`` on the Hugging Face Hub, ``git+https://…`` on a git forge.

::

    hf://datasets/<owner>/<name>[@<revision>][/<path>]      rows, token folders
    hf://<owner>/<name>[@<revision>][/<path>]               a model: its tokenizer
    git+https://<repository>[@<revision>]#<path>            a tokenizer in a git repository

Only the stage fetch reads them, and curate those of benchmarks; every other stage takes a folder or a URI of a bucket.
A slash in a revision is written ``%2F``, except in the Hub's own ``refs/convert/…`` and ``refs/pr/…``.
"""

import re
from typing import Literal, NamedTuple
from urllib.parse import quote, unquote

from pairmill.errors import UsageError

Kind = Literal["dataset", "model", "git"]

HUB = "hf://"
GIT = "git+https://"

_REVISION = r"(?:@(?P<revision>refs/(?:convert|pr)/[^/@#]+|[^/@#]+))?"
_NAME = r"[A-Za-z0-9][\w.-]*"
_PATTERNS: dict[Kind, re.Pattern[str]] = {
    "dataset": re.compile(rf"hf://datasets/(?P<name>{_NAME}/{_NAME}){_REVISION}(?:/(?P<path>[^@]*))?", re.ASCII),
    "model": re.compile(
        rf"hf://(?P<name>(?!(?:datasets|spaces)/){_NAME}/{_NAME}){_REVISION}(?:/(?P<path>[^@]*))?", re.ASCII
    ),
    "git": re.compile(rf"git\+(?P<name>https?://[\w.:-]+(?:/[\w.~-]+)+)/?{_REVISION}#(?P<path>[^#]+)", re.ASCII),
}
FORMS: dict[Kind, str] = {
    "dataset": "hf://datasets/<owner>/<name>[@<revision>][/<path>]",
    "model": "hf://<owner>/<name>[@<revision>]",
    "git": "git+https://<host>/<owner>/<name>[@<revision>]#<path of tokenizer.json>",
}
"""How each kind is written."""


class Address(NamedTuple):
    """A place on the Hub or in a git repository.

    Args:
        kind: what is there.
        name: ``owner/name`` on the Hub; the repository's ``https://`` address.
        revision: branch, tag or commit.
        path: below the repository's top, without slashes at its ends; empty = all of it.
    """

    kind: Kind
    name: str
    revision: str
    path: str = ""

    @property
    def locked(self) -> str:
        """What a lock entry is for. Paths of one repository of the Hub share theirs, so that they are of one commit."""
        revision = quote(self.revision, safe="")
        if self.kind == "git":
            return f"git+{self.name}@{revision}#{self.path}"
        return f"hf://{'datasets/' if self.kind == 'dataset' else ''}{self.name}@{revision}"

    @property
    def text(self) -> str:
        """The address in full."""
        return self.locked if self.kind == "git" or not self.path else f"{self.locked}/{self.path}"

    @property
    def slug(self) -> str:
        """The repository as the name of a folder."""
        return re.sub(r"[^\w.-]+", "--", self.name.removeprefix("https://").removeprefix("http://"))


def is_address(given: str) -> bool:
    """Return whether only fetch can read this."""
    return given.startswith((HUB, "git+"))


def parse(given: str, option: str, kinds: tuple[Kind, ...]) -> Address | None:
    """Return the address that an option gives; None for a path or a URI of a bucket.

    Args:
        given: one item of the option.
        option: its name, for messages.
        kinds: what the option takes.

    Raises:
        UsageError: not of the form of one of ``kinds``.
    """
    if not is_address(given):
        return None
    for kind in kinds:
        match = _PATTERNS[kind].fullmatch(given)
        parts = (unquote(match["path"] or "").strip("/") if match else "").split("/")
        if match and all(part not in {".", ".."} and "\0" not in part for part in parts):
            default = "HEAD" if kind == "git" else "main"
            name = match["name"].removesuffix(".git") if kind == "git" else match["name"]
            return Address(kind, name, unquote(match["revision"] or default), "/".join(filter(None, parts)))
    wanted = " or ".join(f"{option}={FORMS[kind]}" for kind in kinds)
    hint = ""
    model = _PATTERNS["model"].fullmatch(given)
    if "dataset" in kinds and model:
        hint = f"this names a model; write {option}=hf://datasets/{given.removeprefix(HUB)}"
    elif "dataset" not in kinds and _PATTERNS["dataset"].fullmatch(given):
        hint = "this names a data set; a tokenizer is in a model"
    elif "git" in kinds and given.startswith("git+"):
        hint = "no user and no password; the path of the file is after #"
    elif re.fullmatch(r"hf://datasets/[\w.-]+", given):
        hint = "the owner is missing"
    raise UsageError("not a valid address", where=option, got=given, expected=wanted, hint=hint)


def refuse(given: str, option: str, *, fetch: str = "", expected: str = "a folder, or a URI of a bucket") -> None:
    """Raise UsageError for an address, where a stage other than fetch takes an option; ``fetch``: its name there."""
    if is_address(given):
        raise UsageError(
            "only fetch reads the Hub and git",
            where=option,
            got=given,
            expected=expected,
            hint=f"write pairmill fetch '{fetch or option}={given}' root=…, and give {option}= what it prints",
        )
