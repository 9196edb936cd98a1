"""A sampled folder on the machine that trains: hidden while it is written, renamed when it is whole, held, retired.

What is being written is ``<parent>/.<name>.<random>.partial``, made for one user alone and locked by its writer. A lock
of its own, ``.<name>.<fingerprint>.lock``, keeps two pods from writing twice. A folder that is at the target
already is replaced only if pairmill wrote it, and is used only if it belongs to this user or to root. Where
``output_path`` ends with ``{fingerprint}`` the parent is the *folder of the node*: a folder for each sample, and
``PLAN``, which names the wanted one.

Everything goes by descriptor (:mod:`components.sample.node.owned`), because the parent may be one that
everybody writes to. Whoever uses a sample may hold a shared flock(2) on its folder: then it is not retired.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import logging
import os
import re
import secrets
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from components.sample.config import FINGERPRINT
from components.sample.node import owned
from components.sample.node.owned import Folder
from components.sample.node.space import in_memory
from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import MANIFEST, Manifest
from pairmill.errors import StorageError, UsageError
from pairmill.formats.sample_folder import PLAN
from pairmill.log import event

NAME = "sample"
FACTS = "_NODE.json"
"""What is true of this node alone (seconds, bytes read, what was verified), and so no part of the manifest."""
LOCK_SECONDS = 1800.0
"""How long a run waits for another one that writes the same sample."""
_POLL = 0.1
_PATIENCE = 0.3
"""Seconds: a sweeper holds a lock for less, and that is not worth a word."""


class Node:
    """Where a sample goes.

    Args:
        output_path: a local path, or one that ends with ``{fingerprint}``.
        fingerprint: of the sample.

    Raises:
        UsageError: it is no local path, or not one that could be a folder of its own.
    """

    def __init__(self, output_path: str, fingerprint: str) -> None:
        if storage.scheme(output_path) != "file":
            raise UsageError(
                "is no local folder", where="output_path", got=output_path, expected="a path, such as /dev/shm/sampled"
            )
        self._fingerprint = fingerprint
        given = storage.local_path(storage.normalise(output_path, "output_path"))
        self.shared = given.name == FINGERPRINT
        """Whether the parent is the folder of a node, with a folder for each sample."""
        self.target = given.with_name(fingerprint) if self.shared else given
        if self.target.parent == self.target:
            raise UsageError(
                "is the top of the file system", where="output_path", got=output_path, expected="a folder of its own"
            )

    @contextmanager
    def _parent(self, *, make: bool = False) -> Iterator[Folder | None]:
        """The folder that the target is in; None if it is absent."""
        path = self.target.parent
        with owned.errors_name(str(path)):
            try:
                handle = owned.walk(path, make=make)
            except FileNotFoundError:
                if make:
                    raise
                handle = -1
        try:
            yield Folder(path, handle, durable=not in_memory(path)) if handle >= 0 else None
        finally:
            if handle >= 0:
                os.close(handle)

    @contextmanager
    def _standing(self, parent: Folder) -> Iterator[int | None]:
        """What is at the target, open; None if nothing is, or an empty folder.

        Raises:
            UsageError: something that pairmill did not write is there.
            StorageError: it belongs to another user.
        """
        handle = self._opened(parent)
        if handle is None:
            yield None
            return
        try:
            names = os.listdir(handle)
            if not names or (MANIFEST not in names and not owned.leads(parent.handle, self.target.name, handle)):
                yield None  # nobody's, and the sample takes its place; or another run just replaced it
                return
            self._refuse_foreign(os.fstat(handle).st_uid)
            if MANIFEST not in names:
                raise _not_ours(self.target)
            yield handle
        finally:
            os.close(handle)

    def _opened(self, parent: Folder) -> int | None:
        found = owned.look(parent.handle, self.target.name)
        if found is None:
            return None
        if not stat.S_ISDIR(found.st_mode):
            raise _not_ours(self.target)
        with owned.errors_name(str(self.target)):
            try:
                return owned.open_folder(parent.handle, self.target.name)
            except FileNotFoundError:  # another run replaces it at this moment
                return None
            except PermissionError:
                self._refuse_foreign(found.st_uid)
                raise

    def _refuse_foreign(self, uid: int) -> None:
        if owned.trusted(uid):
            return
        raise StorageError(
            "belongs to another user, who could change it under a training",
            where=f"output_path={self.target}",
            got=f"a folder of {owned.whose(uid)}",
            expected=f"one of {owned.whose(os.geteuid())} or of root",
            hint="choose an output_path of your own, or have its owner remove it",
        )

    def finished(self) -> Manifest | None:
        """The manifest of a whole folder of this sample at the target, which belongs to us alone, else None.

        Its files are there and as large as they should be; their bytes are :meth:`verified`.

        Raises:
            UsageError: something that pairmill did not write is there.
            StorageError: what is there belongs to another user.
        """
        with self._parent() as parent:
            if parent is None:
                return None
            with self._standing(parent) as handle:
                if handle is None:
                    return None
                made = _made(handle)
                if made is None and owned.leads(parent.handle, self.target.name, handle):
                    raise UsageError(
                        "is not a sampled folder", where=f"output_path={self.target}", hint="choose another output_path"
                    )
                if made not in {"", self._fingerprint}:
                    return None
                _, wrong = owned.state(handle)
                if wrong:
                    event(f"{self.target}: {wrong}; the sample is made again", level=logging.WARNING)
                    return None
                return manifests.whole(str(self.target))

    def verified(self, manifest: Manifest, workers: int, *, afresh: bool = False) -> bool:
        """Whether the files at the target have the digests of their manifest.

        They are read once. In the folder of a node a note says what they were then (inodes, sizes, times); as long as
        that is so, and the machine was not started again, they are not read a second time.

        Args:
            manifest: what :meth:`finished` gave.
            workers: threads.
            afresh: read them whatever the note says.
        """
        with self._parent() as parent:
            assert parent is not None
            with self._standing(parent) as handle, owned.errors_name(str(self.target)):
                if handle is None:
                    return False
                folder = Folder(self.target, handle, parent.durable)
                facts = _facts(handle)
                note = self._note(folder)
                if note and facts.get("verified") == note and not afresh:
                    return True
                start = time.monotonic()
                wrong = owned.unlike(handle, manifest.files, workers)
                if wrong:
                    event(
                        f"{self.target}: {len(wrong)} of its files are not what its manifest says (first: {wrong[0]}); "
                        "making them again",
                        level=logging.WARNING,
                    )
                    return False
                size = sum(file.size for file in manifest.files)
                seconds = round(time.monotonic() - start, 3)
                event(f"{self.target}: {size:,} bytes are what the manifest says", bytes=size, seconds=seconds)
                with suppress(PermissionError):  # root's, and we are not
                    self._write_facts(folder, {**facts, "verified": note})
                return owned.leads(parent.handle, self.target.name, handle)

    def facts(self, folder: Folder, **facts: float) -> None:
        """Note what is true of this node alone beside the files that were just written and digested."""
        if self.shared:
            self._write_facts(folder, {**facts, "verified": self._note(folder)})

    def _note(self, folder: Folder) -> str:
        boot = owned.boot()
        return f"{boot} {owned.state(folder.handle, [FACTS])[0]}" if boot else ""

    def _write_facts(self, folder: Folder, facts: dict[str, Any]) -> None:
        if self.shared:
            owned.write(folder, FACTS, json.dumps(facts).encode())

    @contextmanager
    def partial(self) -> Iterator[Folder]:
        """An empty hidden folder beside the target; another writer of the same sample waits here.

        It is removed when the block ends, unless the block has put it into its place.

        Raises:
            StorageError: the other writer takes longer than ``LOCK_SECONDS``.
        """
        with self._parent(make=True) as parent:
            assert parent is not None
            self._refuse_closed(parent)
            self._warn_of_open(parent)
            with self._turn(parent):
                folder = owned.make(parent, self.target.name)
                try:
                    yield folder
                finally:
                    if owned.leads(parent.handle, folder.path.name, folder.handle):
                        owned.remove(parent.handle, folder.path.name, folder.handle)
                    os.close(folder.handle)

    def _refuse_closed(self, parent: Folder) -> None:
        if not os.access(".", os.W_OK | os.X_OK, dir_fd=parent.handle, effective_ids=True):
            state = os.fstat(parent.handle)
            raise StorageError(
                "nothing may be written there",
                where=str(parent.path),
                got=f"a folder of {owned.whose(state.st_uid)}, mode {state.st_mode & 0o7777:o}",
                expected=f"one that {owned.whose(os.geteuid())} may write to",
                hint="choose an output_path of your own, or let the owner of the folder run this",
            )

    def _warn_of_open(self, parent: Folder) -> None:
        """Who can rename what is in a folder can put something else into the place of a finished sample."""
        state = os.fstat(parent.handle)
        if self.shared and (not owned.trusted(state.st_uid) or state.st_mode & 0o1002 == stat.S_IWOTH):
            event(
                f"{NAME}: {parent.path} is a folder of {owned.whose(state.st_uid)}, mode {state.st_mode & 0o7777:o}: "
                "others can put something else into the place of the sample; `prepare` makes it yours",
                level=logging.WARNING,
            )

    @contextmanager
    def _turn(self, parent: Folder) -> Iterator[None]:
        """Hold the lock of this sample. Two that write it cost memory and nothing else, so a foreign lock is passed."""
        name = f".{self.target.name}.{self._fingerprint}.lock"
        start, said = time.monotonic(), False
        while (handle := _open_lock(parent, name)) is not None:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.pread(handle, 200, 0).decode(errors="replace") or "another run"
                os.close(handle)
                waited = time.monotonic() - start
                if waited >= LOCK_SECONDS:
                    raise StorageError(
                        f"another run has been writing this sample for more than {LOCK_SECONDS:,.0f} s",
                        where=f"output_path={self.target}",
                        got=f"{parent.path / name} held by {holder}",
                        hint="let it end, or end it; then run the same command",
                    ) from None
                if waited >= _PATIENCE and not said:
                    said = True
                    event(f"{NAME}: waiting for {holder}, which writes {self.target}", holder=holder)
                time.sleep(_POLL)
                continue
            # Between its opening and its locking another run may have removed it.
            if owned.leads(parent.handle, name, handle):
                break
            os.close(handle)
        if handle is None:
            yield
            return
        try:
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
            yield
        finally:
            if owned.leads(parent.handle, name, handle):
                os.unlink(name, dir_fd=parent.handle)
            os.close(handle)

    def commit(self, partial: Folder) -> None:
        """Put the folder in its place. One that stands there already changes places with it in one step, and goes.

        Processes that map the old one keep its pages. What is on a disk is there before it has its name, and so is the
        name before this returns.
        """
        with self._parent() as parent:
            assert parent is not None
            hidden, target = partial.path.name, self.target.name
            mask = os.umask(0)
            os.umask(mask)
            os.fchmod(partial.handle, 0o755 & ~mask)
            partial.settle()
            with self._standing(parent) as old:
                self._refuse_swapped(parent, hidden, partial)
                self._put(parent, hidden, target, old)
            if not self._taken_by_another(parent, partial):
                self._refuse_swapped(parent, target, partial)
            if parent.durable:
                os.fsync(parent.handle)

    def _taken_by_another(self, parent: Folder, partial: Folder) -> bool:
        """Whether another sampler of ours has put its sample into the place of this one: the last one stays."""
        if owned.leads(parent.handle, self.target.name, partial.handle):
            return False
        with suppress(OSError):
            handle = owned.open_folder(parent.handle, self.target.name)
            try:
                if _is_our_sample(handle):
                    event(f"{NAME}: another run has put its sample into the place of this one: {self.target}")
                    return True
            finally:
                os.close(handle)
        return False

    def _refuse_swapped(self, parent: Folder, name: str, partial: Folder) -> None:
        if not owned.leads(parent.handle, name, partial.handle):
            raise StorageError(
                "somebody put something else into the place of what was written",
                where=str(parent.path / name),
                hint="choose an output_path in a folder that only you write to",
            )

    def _put(self, parent: Folder, hidden: str, target: str, old: int | None) -> None:
        at = parent.handle
        if old is None:
            try:
                os.rename(hidden, target, src_dir_fd=at, dst_dir_fd=at)
            except OSError as error:
                if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                    raise
                with self._standing(parent) as found:  # another run was faster
                    self._put(parent, hidden, target, found)
            return
        if not _exchange(at, hidden, target):
            aside = _aside(target)
            os.rename(target, aside, src_dir_fd=at, dst_dir_fd=at)
            os.rename(hidden, target, src_dir_fd=at, dst_dir_fd=at)
            hidden = aside
        if owned.leads(at, hidden, old):
            owned.remove(at, hidden, old)
            return
        # Another sampler of ours was faster: what it made has changed places with this one.
        with suppress(OSError):
            other = owned.open_folder(at, hidden)
            try:
                if _is_our_sample(other):
                    owned.remove(at, hidden, other)
            finally:
                os.close(other)

    def sweep(self) -> None:
        """Remove hidden folders and locks that killed writers left beside the target; what others put there stays."""
        name = "[0-9a-f]{16}" if self.shared else re.escape(self.target.name)
        ours = re.compile(rf"\.{name}\.[0-9a-f]{{16}}\.(partial|lock)")
        with self._parent() as parent:
            if parent is None:
                return
            for entry in sorted(filter(ours.fullmatch, os.listdir(parent.handle))):
                with suppress(OSError):
                    if _swept(parent, entry) and entry.endswith(".partial"):
                        event(f"{NAME}: removed {parent.path / entry}, left by a run that was killed")

    def outdated(self, keep: int) -> list[Path]:
        """The node's samples but this and the ``keep`` that were wanted last; of those, what is ours."""
        if not self.shared:
            return []
        found: list[tuple[int, str]] = []
        with self._parent() as parent:
            for name in os.listdir(parent.handle) if parent is not None else ():
                if not manifests.is_fingerprint(name) or name == self.target.name:
                    continue
                # Another sampler may remove it at any moment.
                with suppress(OSError):
                    assert parent is not None
                    handle = owned.open_folder(parent.handle, name)
                    try:
                        one = os.fstat(handle)
                        if _made(handle) != name:
                            continue
                        if one.st_uid == os.geteuid():
                            found.append((one.st_mtime_ns, name))
                        else:
                            _left_alone(self.target.with_name(name), one)
                    finally:
                        os.close(handle)
        return [self.target.with_name(name) for _, name in sorted(found, reverse=True)[keep:]]

    def retire(self, samples: list[Path]) -> None:
        """Remove samples that nobody holds."""
        with self._parent() as parent:
            for path in samples:
                removed = _removed(parent.handle, path.name) if parent is not None else None
                if removed:
                    event(f"{NAME}: removed {path}, an older sample", removed=path.name)
                elif removed is not None:
                    event(f"{NAME}: {path} stays, somebody holds it", held=path.name)

    def want(self) -> None:
        """Say that this sample, which is there, is the one that is wanted; nothing is written where it is said already.

        Raises:
            StorageError: it is to be said, and may not be written.
        """
        if not self.shared:
            return
        said = f"{self._fingerprint}\n".encode()
        with self._parent() as parent:
            assert parent is not None
            try:
                # The order in which samples are retired.
                os.utime(self.target.name, dir_fd=parent.handle, follow_symlinks=False)
            except PermissionError:  # root's, and we are not
                pass
            except FileNotFoundError as error:
                raise StorageError(
                    "another sampler, which carries out another plan, removed the sample",
                    where=str(self.target),
                    hint="run one after the other, or with a higher keep=",
                ) from error
            found = owned.look(parent.handle, PLAN)
            if found is not None and owned.trusted(found.st_uid) and owned.read(parent.handle, PLAN) == said:
                return
            try:
                owned.write(parent, PLAN, said)
                if parent.durable:
                    os.fsync(parent.handle)
            except PermissionError as error:
                whose = owned.whose(os.fstat(parent.handle).st_uid)
                raise StorageError(
                    f"{PLAN} names another sample, and may not be written",
                    where=str(parent.path / PLAN),
                    got=f"a folder of {whose}: {error.strerror}",
                    expected=f"a folder that {owned.whose(os.geteuid())} may write to",
                    hint="choose an output_path of your own, or let the owner of the folder run this",
                ) from error


def _not_ours(target: Path) -> UsageError:
    return UsageError(
        "something that pairmill did not write stands there",
        where=f"output_path={target}",
        hint="remove it or choose another output_path",
    )


def _left_alone(path: Path, found: os.stat_result) -> None:
    kind = "a link" if stat.S_ISLNK(found.st_mode) else "something"
    event(f"{NAME}: {path} is left alone: it is {kind} of {owned.whose(found.st_uid)}", level=logging.WARNING)


def _open_lock(parent: Folder, name: str) -> int | None:
    """Open a lock, made if it is absent; None, and a word, if what has its name is not a file of ours."""
    # O_NONBLOCK: no waiting for the other end of a FIFO.
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        handle = os.open(name, flags, 0o600, dir_fd=parent.handle)
    except OSError:
        found = owned.look(parent.handle, name)
        if found is None or (stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()):
            raise
        _left_alone(parent.path / name, found)
        return None
    found = os.fstat(handle)
    # A second name (a hard link) would be another file of ours, which is not to be written to.
    if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and found.st_nlink <= 1:
        return handle
    os.close(handle)
    _left_alone(parent.path / name, found)
    return None


def _swept(parent: Folder, name: str) -> bool:
    """Remove a leftover that is ours and that nobody holds; whether it was."""
    found = owned.look(parent.handle, name)
    if found is None:
        return False
    folder = stat.S_ISDIR(found.st_mode)
    if (
        found.st_uid != os.geteuid()
        or not (folder or stat.S_ISREG(found.st_mode))
        or folder != name.endswith("partial")
    ):
        _left_alone(parent.path / name, found)
        return False
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    handle = os.open(name, flags, dir_fd=parent.handle)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(found, os.fstat(handle)) or not owned.leads(parent.handle, name, handle):
            return False
        if folder:
            owned.remove(parent.handle, name, handle)
        else:
            os.unlink(name, dir_fd=parent.handle)
    finally:
        os.close(handle)
    return True


def _facts(folder: int) -> dict[str, Any]:
    with suppress(ValueError):
        found = json.loads(owned.read(folder, FACTS) or b"{}")
        return found if isinstance(found, dict) else {}
    return {}


def _made(folder: int) -> str | None:
    """The fingerprint that a sampled folder's manifest names, "" if unreadable; None if it is no sampled folder."""
    data = owned.read(folder, MANIFEST)
    if data is None:
        return None
    try:
        raw = json.loads(data)
        return str(raw["fingerprint"]) if raw["stage"] == NAME else None
    except (ValueError, TypeError, KeyError):
        # Cut or emptied: ours if the arrays are beside it, and then made again.
        beside = [owned.look(folder, name) for name in ("tokens.npy", "metadata.json")]
        return "" if all(found is not None and stat.S_ISREG(found.st_mode) for found in beside) else None


def _removed(parent: int, name: str) -> bool | None:
    """Remove a folder that nobody holds; it is out of sight before its first file goes.

    False if somebody holds it, None if it is gone already: two samplers retire at the same time.
    """
    try:
        handle = owned.open_folder(parent, name)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not owned.leads(parent, name, handle):
            return None
        aside = _aside(name)
        os.rename(name, aside, src_dir_fd=parent, dst_dir_fd=parent)
        owned.remove(parent, aside, handle)
    except BlockingIOError:
        # Another sampler that removes it holds it too, out of sight.
        return False if owned.leads(parent, name, handle) else None
    finally:
        os.close(handle)
    return True


def _aside(name: str) -> str:
    return f".{name}.{secrets.token_hex(8)}.partial"


def _exchange(parent: int, one: str, other: str) -> bool:
    # renameat2(2) with RENAME_EXCHANGE; Python has no name for it, and not every file system can do it.
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    exchange = 2
    done: int = renameat2(parent, os.fsencode(one), parent, os.fsencode(other), exchange)
    return done == 0


def _is_our_sample(folder: int) -> bool:
    """Whether this descriptor is of a sampled folder of this user."""
    return os.fstat(folder).st_uid == os.geteuid() and _made(folder) is not None
