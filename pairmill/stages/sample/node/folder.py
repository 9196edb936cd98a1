"""A sampled folder on the machine that trains: hidden while it is written, renamed when complete, kept or removed.

While it is written it is ``<parent>/.<name>.<random>.partial``, open to one user alone and locked by its writer.
Another lock, ``.<name>.<fingerprint>.lock``, keeps two pods from writing the same sample twice. A folder at the target
is replaced only if pairmill wrote it, and is used only if it belongs to this user or to root. If ``output_path`` ends
with ``{fingerprint}``, its parent is the *node's folder*: a folder for each sample, and ``PLAN``, which names the
current one.

All access is by descriptor (:mod:`pairmill.stages.sample.node.owned`), because everybody may be able to write to
the parent. A process that uses a sample may hold a shared flock(2) on its folder: then the sample is not removed.
"""

import ctypes
import errno
import fcntl
import json
import logging
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import MANIFEST, File, Manifest
from pairmill.errors import InputError, StorageError, UsageError
from pairmill.formats.sample_folder import PLAN
from pairmill.formats.token_listing import named
from pairmill.log import event
from pairmill.stages.sample.node import owned
from pairmill.stages.sample.node.config import FINGERPRINT
from pairmill.stages.sample.node.facts import FACTS, is_verified, read_facts, write_facts
from pairmill.stages.sample.node.owned import OpenFolder
from pairmill.stages.sample.node.space import in_memory, require_space
from pairmill.stages.sample.node.twins import link_twins

NAME = "sample"
LOCK_SECONDS = 1800.0
"""How long a run waits for another one that writes the same sample."""
_POLL = 0.1
_PATIENCE = 0.3
"""Seconds before waiting is logged: a run that only cleans up holds a lock for less."""
_OWN_PATH = "choose an output_path of your own"


class Node:
    """Where a sample goes.

    Args:
        output_path: a local path, or one that ends with ``{fingerprint}``.

    Raises:
        UsageError: not a local path, or the top of the file system.
    """

    def __init__(self, output_path: str, fingerprint: str) -> None:
        if storage.scheme(output_path) != "file":
            raise UsageError(
                "not a local folder", where="output_path", got=output_path, expected="a path, such as /dev/shm/sampled"
            )
        self._fingerprint = fingerprint
        given = storage.local_path(storage.normalise(output_path, "output_path"))
        self.shared = given.name == FINGERPRINT
        """Whether the parent is a node's folder, with a folder for each sample."""
        self.target = given.with_name(fingerprint) if self.shared else given
        if self.target.parent == self.target:
            raise UsageError(
                "is the top of the file system", where="output_path", got=output_path, expected="a folder of its own"
            )

    # --- what is there ---

    @contextmanager
    def _parent(self, *, make: bool = False) -> Iterator[OpenFolder | None]:
        """Open the folder that the target is in; None if it is absent."""
        path, parent = self.target.parent, None
        with ExitStack() as stack:
            with owned.errors_at(str(path)), nullcontext() if make else suppress(FileNotFoundError):
                handle = stack.enter_context(owned.closing(owned.open_path(path, make=make)))
                parent = OpenFolder(path, handle, durable=not in_memory(path))
            yield parent

    @contextmanager
    def _at_target(self, parent: OpenFolder | None) -> Iterator[int | None]:
        """Open the folder at the target; None if nothing is there, or an empty folder.

        Raises:
            UsageError: pairmill did not write what is there.
            StorageError: it belongs to another user.
        """
        result = owned.lstat(parent.handle, self.target.name) if parent is not None else None
        if parent is None or result is None:
            yield None
            return
        if not stat.S_ISDIR(result.st_mode):
            raise self._not_ours()
        with ExitStack() as stack:
            with owned.errors_at(str(self.target)):
                try:
                    handle = stack.enter_context(owned.closing(owned.open_folder(parent.handle, self.target.name)))
                    names = os.listdir(handle)
                except FileNotFoundError:  # another run is replacing it
                    names = []
                except PermissionError:
                    self._refuse_foreign(result.st_uid)
                    raise
            if not names or (MANIFEST not in names and not owned.is_at(parent.handle, self.target.name, handle)):
                yield None  # an empty folder is nobody's; or another run has just replaced it
                return
            self._refuse_foreign(os.fstat(handle).st_uid)
            if MANIFEST not in names:
                raise self._not_ours()
            yield handle

    def _not_ours(self) -> UsageError:
        return UsageError(
            "pairmill did not write what is there",
            where=f"output_path={self.target}",
            hint="remove it or choose another output_path",
        )

    def _refuse_foreign(self, uid: int) -> None:
        if not owned.trusted(uid):
            raise StorageError(
                "belongs to another user, who could change it during training",
                where=f"output_path={self.target}",
                got=f"a folder of {owned.user(uid)}",
                expected=f"one of {owned.user(os.geteuid())} or of root",
                hint=f"{_OWN_PATH}, or have its owner remove it",
            )

    def refuse_other_files(self) -> None:
        """Raise UsageError if pairmill did not write what is at the target, StorageError if it is another user's."""
        with self._parent() as parent, self._at_target(parent) as handle:
            if parent is not None and handle is not None:
                self._fingerprint_at(parent, handle)

    def _fingerprint_at(self, parent: OpenFolder, handle: int) -> str | None:
        """Return the fingerprint of the sample at the target: "" if unreadable, None if it has just been replaced."""
        made = _fingerprint_of(handle)
        if made is None and owned.is_at(parent.handle, self.target.name, handle):
            raise self._not_ours()
        return made

    def load_if_intact(self, workers: int, *, expected: list[File] | None, verify: bool) -> Manifest | None:
        """Return this sample's manifest if it is at the target, complete, and nobody else can change it; else None.

        Its bytes are digested once. In a node's folder ``_NODE.json`` records their state (inodes, sizes, times). They
        are read again only if the state changed or the machine was restarted.

        Args:
            expected: the files that it must have; None = any.
            verify: digest the bytes in any case.

        Raises:
            UsageError: pairmill did not write what is there.
            StorageError: it belongs to another user.
        """
        with self._parent() as parent, self._at_target(parent) as handle, owned.errors_at(str(self.target)):
            if parent is None or handle is None:
                return None
            made = self._fingerprint_at(parent, handle)
            if made not in {"", self._fingerprint}:
                return None
            folder = OpenFolder(self.target, handle, parent.durable)
            try:
                manifest = Manifest.load(owned.read(handle, MANIFEST) or b"", MANIFEST)
                if expected is not None and expected != named(manifest.files, expected):
                    return None
                self._check(folder, manifest.files, workers, verify)
            except InputError as error:
                event(f"{self.target}: {error}; making the sample again", level=logging.WARNING)
                return None
            return manifest if owned.is_at(parent.handle, self.target.name, handle) else None

    def _check(self, folder: OpenFolder, files: list[File], workers: int, verify: bool) -> None:
        """Raise InputError if others can change the folder, or a file is missing or differs from the manifest."""
        state = owned.state(folder.handle, FACTS)
        if state.shared:
            raise InputError(state.shared)
        wrong = [file.path for file in files if state.sizes.get(file.path) != file.size]
        facts = read_facts(folder.handle)
        if not wrong and not verify and is_verified(state, facts):
            return
        start = time.monotonic()
        wrong = wrong or owned.of_other_digest(folder.handle, files, workers)
        if wrong:
            raise InputError(f"{len(wrong)} files are missing or differ from the manifest (first: {wrong[0]})")
        size, seconds = sum(file.size for file in files), round(time.monotonic() - start, 3)
        event(f"{self.target}: {size:,} bytes match the manifest", bytes=size, seconds=seconds)
        with suppress(PermissionError):  # root wrote it, and we are not root
            self.record(folder, state, facts)

    def record(self, folder: OpenFolder, verified: owned.State, facts: dict[str, Any]) -> None:
        """Record facts about this node, and the state in which the files were verified."""
        if self.shared:
            write_facts(folder, verified, facts)

    # --- writing ---

    @contextmanager
    def partial(self) -> Iterator[OpenFolder]:
        """Make an empty hidden folder beside the target. If another run writes the same sample, wait for it first.

        The folder is removed when the block ends, unless the block has committed it.

        Raises:
            StorageError: the other run takes longer than ``LOCK_SECONDS``.
        """
        with self._parent(make=True) as parent:
            assert parent is not None
            state = os.fstat(parent.handle)
            described = f"a folder of {owned.user(state.st_uid)}, mode {state.st_mode & 0o7777:o}"
            if not os.access(".", os.W_OK | os.X_OK, dir_fd=parent.handle, effective_ids=True):
                raise StorageError(
                    "no permission to write",
                    where=str(parent.path),
                    got=described,
                    expected=f"a folder that {owned.user(os.geteuid())} may write to",
                    hint=f"{_OWN_PATH}, or let the owner of the folder run this",
                )
            if self.shared and (not owned.trusted(state.st_uid) or state.st_mode & 0o1002 == stat.S_IWOTH):
                # Without the sticky bit, who can write to a folder can rename what is in it.
                event(
                    f"{NAME}: {parent.path} is {described}: others can replace the sample; `prepare` makes it yours",
                    level=logging.WARNING,
                )
            with self._lock(parent):
                folder = owned.make_partial(parent, self.target.name)
                with owned.closing(folder.handle):
                    try:
                        yield folder
                    finally:
                        if owned.is_at(parent.handle, folder.path.name, folder.handle):
                            owned.remove(parent.handle, folder.path.name, folder.handle)

    @contextmanager
    def _lock(self, parent: OpenFolder) -> Iterator[None]:
        """Hold the lock of this sample, unless another user has put something under its name.

        Without the lock two runs may write the sample at once, which only costs memory.
        """
        name = f".{self.target.name}.{self._fingerprint}.lock"
        start, logged = time.monotonic(), False
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
                        hint="wait until it ends, or end it; then run the same command",
                    ) from None
                if waited >= _PATIENCE and not logged:
                    logged = True
                    event(f"{NAME}: waiting for {holder}, which writes {self.target}", holder=holder)
                time.sleep(_POLL)
                continue
            # Another run may have removed the file between opening and locking.
            if owned.is_at(parent.handle, name, handle):
                break
            os.close(handle)
        if handle is None:
            yield
            return
        try:
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"process {os.getpid()} on {os.uname().nodename}".encode(), 0)
            yield
        finally:
            if owned.is_at(parent.handle, name, handle):
                os.unlink(name, dir_fd=parent.handle)
            os.close(handle)

    def link(self, partial: OpenFolder, wanted: list[File], workers: int) -> list[File]:
        """Link files that samples beside this one have into the folder that is being written; return those."""
        result: list[File] = []
        with self._parent() as parent:
            assert parent is not None
            names = sorted(filter(manifests.is_fingerprint, os.listdir(parent.handle))) if self.shared else []
            for name in [self.target.name, *names]:
                left = [file for file in wanted if file not in result]
                # OSError: another run may remove it at any moment.
                with suppress(OSError, InputError), owned.closing(owned.open_folder(parent.handle, name)) as handle:
                    if left and _fingerprint_of(handle):
                        source = OpenFolder(parent.path / name, handle, parent.durable)
                        result += link_twins(source, partial, left, workers)
        if result:
            size = sum(file.size for file in result)
            event(f"{NAME}: {len(result)} files are linked: samples beside this one have them", bytes=size)
        return result

    def make_room(self, needed: int, working: int, keep: int) -> None:
        """Check that the sample fits, and remove older samples except ``keep``; ``needed`` and ``working`` are bytes.

        Raises:
            StorageError: it does not fit. Older samples were removed only if that was expected to suffice.
        """
        outdated = self.outdated(keep)
        require_space(self.target, needed, working, sum(map(_size, outdated)))
        self.retire(outdated)
        require_space(self.target, needed, working)

    def commit(self, partial: OpenFolder) -> None:
        """Move the folder to the target. A sample that is there is exchanged with it in one step, and removed.

        Processes that map the old one keep its pages. On a disk the files are durable before they have their name, and
        the name is durable before this returns.
        """
        with self._parent() as parent:
            assert parent is not None
            mask = os.umask(0)
            os.umask(mask)
            os.fchmod(partial.handle, 0o755 & ~mask)
            partial.flush()
            self._put(parent, partial)
            if not owned.is_at(parent.handle, self.target.name, partial.handle):
                # Of two runs that commit at the same time the last one stays.
                with self._at_target(parent) as other:
                    if other is None or not _is_our_sample(other):
                        raise self._replaced(self.target)
                event(f"{NAME}: another run has replaced this sample with its own: {self.target}")
            if parent.durable:
                os.fsync(parent.handle)

    def _replaced(self, path: Path) -> StorageError:
        return StorageError(
            "another process replaced the folder that was written",
            where=str(path),
            hint="choose an output_path in a folder that only you can write to",
        )

    def _put(self, parent: OpenFolder, partial: OpenFolder) -> None:
        at, hidden, target = parent.handle, partial.path.name, self.target.name
        with self._at_target(parent) as old:
            if not owned.is_at(at, hidden, partial.handle):
                raise self._replaced(partial.path)
            if old is None:
                try:
                    os.rename(hidden, target, src_dir_fd=at, dst_dir_fd=at)
                except OSError as error:
                    if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                        raise
                    self._put(parent, partial)  # another run was faster
                return
            if not _exchange(at, hidden, target):
                aside = owned.move_aside(at, target)
                os.rename(hidden, target, src_dir_fd=at, dst_dir_fd=at)
                hidden = aside
            # If another run was faster this is its sample, and just as outdated.
            with suppress(OSError), owned.closing(owned.open_folder(at, hidden)) as gone:
                if os.path.samestat(os.fstat(gone), os.fstat(old)) or _is_our_sample(gone):
                    owned.remove(at, hidden, gone)

    # --- older samples ---

    def sweep(self) -> None:
        """Remove hidden folders and locks that killed runs of ours left beside the target."""
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
        """Return our samples in the node's folder without this one and the ``keep`` that were current last."""
        result: list[tuple[int, str]] = []
        with self._parent() as parent:
            if parent is None or not self.shared:
                return []
            for name in os.listdir(parent.handle):
                if not manifests.is_fingerprint(name) or name == self.target.name:
                    continue
                # OSError: another run may remove it at any moment.
                with suppress(OSError), owned.closing(owned.open_folder(parent.handle, name)) as handle:
                    item = os.fstat(handle)
                    if _fingerprint_of(handle) != name:
                        continue
                    if item.st_uid == os.geteuid():
                        result.append((item.st_mtime_ns, name))
                    else:
                        _log_left_alone(self.target.with_name(name), item)
        return [self.target.with_name(name) for _, name in sorted(result, reverse=True)[keep:]]

    def retire(self, samples: list[Path]) -> None:
        """Remove samples that nobody holds."""
        with self._parent() as parent:
            if parent is None:
                return
            for path in samples:
                removed = _removed(parent.handle, path.name)
                if removed:
                    event(f"{NAME}: removed {path}, an older sample", removed=path.name)
                elif removed is not None:
                    event(f"{NAME}: kept {path}, which is in use", held=path.name)

    def make_current(self) -> None:
        """Record this complete sample as the node's current one.

        Raises:
            StorageError: another sample is current, and PLAN cannot be written.
        """
        if not self.shared:
            return
        line = f"{self._fingerprint}\n".encode()
        with self._parent() as parent:
            assert parent is not None
            try:
                # Samples are removed in the order of this time.
                os.utime(self.target.name, dir_fd=parent.handle, follow_symlinks=False)
            except PermissionError:  # root wrote it, and we are not root
                pass
            except FileNotFoundError as error:
                raise StorageError(
                    "another sampler, which carries out another plan, removed the sample",
                    where=str(self.target),
                    hint="run one after the other, or with a higher keep=",
                ) from error
            result = owned.lstat(parent.handle, PLAN)
            if result is not None and owned.trusted(result.st_uid) and owned.read(parent.handle, PLAN) == line:
                return
            try:
                parent.write(PLAN, line)
                if parent.durable:
                    os.fsync(parent.handle)
            except PermissionError as error:
                raise StorageError(
                    f"{PLAN} names another sample, and cannot be written",
                    where=str(parent.path / PLAN),
                    got=f"a folder of {owned.user(os.fstat(parent.handle).st_uid)}: {error.strerror}",
                    expected=f"a folder that {owned.user(os.geteuid())} may write to",
                    hint=f"{_OWN_PATH}, or let the owner of the folder run this",
                ) from error


def _fingerprint_of(folder: int) -> str | None:
    """Return the fingerprint in a sampled folder's manifest; "" if unreadable; None if it is another folder."""
    data = owned.read(folder, MANIFEST)
    if data is None:
        return None
    try:
        raw = json.loads(data)
        return str(raw["fingerprint"]) if raw["stage"] == NAME else None
    except (ValueError, TypeError, KeyError):
        # Truncated: ours if the arrays are beside it, and then made again.
        beside = [owned.lstat(folder, name) for name in ("tokens.npy", "metadata.json")]
        return "" if all(result is not None and stat.S_ISREG(result.st_mode) for result in beside) else None


def _is_our_sample(folder: int) -> bool:
    return os.fstat(folder).st_uid == os.geteuid() and _fingerprint_of(folder) is not None


def _size(folder: Path) -> int:
    """Sum the bytes of a folder's files that no other sample has; another run may be removing them."""
    size = 0
    for place, _, files in os.walk(folder):
        for name in files:
            with suppress(OSError):
                result = os.lstat(os.path.join(place, name))
                size += result.st_size if result.st_nlink == 1 else 0
    return size


def _log_left_alone(path: Path, status: os.stat_result) -> None:
    kind = "a link" if stat.S_ISLNK(status.st_mode) else "something"
    event(f"{NAME}: {path} is left alone: it is {kind} of {owned.user(status.st_uid)}", level=logging.WARNING)


def _open_lock(parent: OpenFolder, name: str) -> int | None:
    """Open a lock file, made if it is absent; None, and a warning, if the name is not a file of ours."""
    try:
        handle = os.open(name, owned.FILE | os.O_RDWR | os.O_CREAT, 0o600, dir_fd=parent.handle)
        result: os.stat_result | None = os.fstat(handle)
    except OSError:
        handle, result = -1, owned.lstat(parent.handle, name)
        if result is None or (stat.S_ISREG(result.st_mode) and result.st_uid == os.geteuid()):
            raise
    assert result is not None
    # A second name (a hard link) would be another file of ours, which must not be overwritten.
    if handle >= 0 and stat.S_ISREG(result.st_mode) and result.st_uid == os.geteuid() and result.st_nlink <= 1:
        return handle
    if handle >= 0:
        os.close(handle)
    _log_left_alone(parent.path / name, result)
    return None


def _swept(parent: OpenFolder, name: str) -> bool:
    """Remove a leftover that is ours and that nobody holds. Return whether it was removed."""
    result = owned.lstat(parent.handle, name)
    if result is None:
        return False
    kind = stat.S_ISDIR if name.endswith("partial") else stat.S_ISREG
    if result.st_uid != os.geteuid() or not kind(result.st_mode):
        _log_left_alone(parent.path / name, result)
        return False
    with owned.closing(os.open(name, owned.FILE | os.O_RDONLY, dir_fd=parent.handle)) as handle:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(result, os.fstat(handle)) or not owned.is_at(parent.handle, name, handle):
            return False
        if kind is stat.S_ISDIR:
            owned.remove(parent.handle, name, handle)
        else:
            os.unlink(name, dir_fd=parent.handle)
    return True


def _removed(parent: int, name: str) -> bool | None:
    """Remove a folder that nobody holds; it is hidden before its first file goes.

    False if another process holds it, None if it is gone already: two runs may retire samples at the same time.
    """
    with suppress(FileNotFoundError), owned.closing(owned.open_folder(parent, name)) as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # The holder may be another run that is removing it: then the name is gone.
            return False if owned.is_at(parent, name, handle) else None
        if not owned.is_at(parent, name, handle):
            return None
        owned.remove(parent, owned.move_aside(parent, name), handle)
        return True
    return None


def _exchange(parent: int, first: str, second: str) -> bool:
    # renameat2(2) with RENAME_EXCHANGE; Python has no name for it, and not every file system can do it.
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    exchange = 2
    done: int = renameat2(parent, os.fsencode(first), parent, os.fsencode(second), exchange)
    return done == 0
