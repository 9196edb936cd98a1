"""Where raw data comes from. A source declares one origin; the fetch stage carries it out."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True)
class Hub:
    """Files of a data set on the Hugging Face Hub, as published.

    Args:
        repo: ``owner/name`` of the data set.
        files: patterns of the files that the source reads (``*`` within a folder, ``**`` across); the data set's
            card, README.md, always comes along.
        revision: branch or tag that is resolved to a commit at the first fetch. ``refs/convert/parquet`` is the
            Hub's own conversion, for data sets whose rows are made by a script.
    """

    repo: str
    files: tuple[str, ...]
    revision: str = "main"


@dataclass(frozen=True)
class HubRows:
    """Rows of a data set on the Hub that cannot be read from its files alone: streamed through ``datasets`` to Parquet.

    Args:
        repo: ``owner/name`` of the data set.
        splits: splits to read, in this order; each becomes ``<split>-00000.parquet`` and so on.
        config: configuration of the data set.
        revision: as for :class:`Hub`.
    """

    repo: str
    splits: tuple[str, ...]
    config: str = "default"
    revision: str = "main"


@dataclass(frozen=True)
class Git:
    """Files of a public git repository, taken from its archive over https.

    Args:
        repository: ``https://github.com/<owner>/<name>``, or another forge with the same archive addresses.
        files: patterns below the repository's top.
        revision: branch or tag that is resolved to a commit at the first fetch.
    """

    repository: str
    files: tuple[str, ...]
    revision: str = "HEAD"


@dataclass(frozen=True)
class Web:
    """One file over https.

    Args:
        url: of the file, or the link by which it is shared on Google Drive. What follows ``#`` is the name that it
            gets, where the address does not end in one.
        unpack: of a tar or zip archive, patterns of the members that the source reads; empty = the file as it is.
    """

    url: str
    unpack: tuple[str, ...] = ()


@dataclass(frozen=True)
class Database:
    """Rows that a query gives of a database on a server, written to Parquet.

    Args:
        address: as its driver takes it, without a password.
        query: SQL that says the order of its rows.
    """

    address: str
    query: str


@dataclass(frozen=True)
class Manual:
    """A file that a person has to download from a web page.

    Args:
        page: URL of the page.
        file: name of the file.
        command: a command line that downloads it.
    """

    page: str
    file: str
    command: str


@dataclass(frozen=True)
class Folder:
    """Files that the user already has, in a folder or at a URI.

    Args:
        uri: the folder.
        files: patterns below it.
        within: for a folder of this machine: absolute paths of the folders that its files must be in once all links
            are resolved.
    """

    keyed_as: ClassVar[str] = "Given"

    uri: str
    files: tuple[str, ...]
    within: tuple[str, ...] = field(default=(), compare=False)


Origin = Hub | HubRows | Git | Web | Database | Manual | Folder


def is_within(real: str, folders: Iterable[str]) -> bool:
    """Return whether a path without links is one of some folders or below one."""
    return any(real == folder or real.startswith(folder.rstrip("/") + "/") for folder in folders)
