"""Writes to the Hugging Face Hub, through its own client: a repository, and commits of files."""

from collections.abc import Collection, Mapping
from typing import Any, BinaryIO

from pairmill.net.hub import Repository, ask_hub, client_library

Content = str | bytes | BinaryIO
"""Path of a local file, bytes, or an open file."""


def create(repository: Repository, *, private: bool) -> None:
    """Create a repository unless it exists. Raises as :func:`pairmill.net.hub.commit_of`."""

    def ask(api: Any) -> None:
        api.create_repo(repository.name, repo_type=repository.kind, private=private, exist_ok=True)

    ask_hub(repository, ask)


def gate_of(repository: Repository) -> str:
    """Return whether a repository is gated: ``auto``, ``manual``, or empty. Raises as ``commit_of``."""

    def ask(api: Any) -> Any:
        return api.repo_info(repository.name, repo_type=repository.kind).gated

    return str(ask_hub(repository, ask) or "")


def push(
    repository: Repository, revision: str, files: Mapping[str, Content], gone: Collection[str], message: str
) -> str:
    """Commit files, and the removal of others, to a branch; return the commit.

    The client sends no large file that the Hub has already, whatever commit it was sent for.

    Raises:
        InputError: the account may not write.
        StorageError: the Hub does not answer.
    """

    def ask(api: Any) -> Any:
        library = client_library()
        operations = [library.CommitOperationAdd(path, content) for path, content in files.items()]
        removals = [library.CommitOperationDelete(path) for path in gone]
        return api.create_commit(
            repository.name,
            [*operations, *removals],
            commit_message=message,
            repo_type=repository.kind,
            revision=revision,
        ).oid

    return str(ask_hub(repository, ask))
