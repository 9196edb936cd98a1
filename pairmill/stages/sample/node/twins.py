"""Files that another sample beside this one has already: they are linked in place of being written.

A sample's files are never changed, and its manifest has their digests. After a task was renamed, or with another seed
of a sample that takes all rows, the tokens are the same; they are gigabytes, and a link takes no time and no room.
"""

import errno
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import groupby

from pairmill.engine.manifest import MANIFEST, File, Manifest
from pairmill.stages.sample.node import owned
from pairmill.stages.sample.node.facts import FACTS, is_verified, read_facts, write_facts
from pairmill.stages.sample.node.owned import OpenFolder

_REFUSALS = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS, errno.EACCES, errno.ENOENT}
"""Another file system, files of another user, one without links; or the other sample was removed meanwhile."""


def link_twins(source: OpenFolder, partial: OpenFolder, wanted: Iterable[File], workers: int) -> list[File]:
    """Link files of a finished sample into a folder that is being written; return those, whole epochs alone.

    Args:
        source: the finished sample.
        partial: the folder that is being written.
        wanted: files that it is to have.
        workers: threads that digest the files, unless the state in which they were last digested is still theirs.

    Raises:
        InputError: the source has no manifest.
    """
    manifest = Manifest.load(owned.read(source.handle, MANIFEST) or b"", str(source.path))
    theirs = {(file.size, file.digest): file.path for file in manifest.files}
    pairs: list[tuple[str, list[File]]] = []
    for folder, group in groupby(sorted(wanted, key=lambda file: file.path), lambda file: os.path.dirname(file.path)):
        files = list(group)
        # Each file at the top by itself.
        pairs += [(folder, files)] if folder else [("", [file]) for file in files]
    pairs = [item for item in pairs if all((file.size, file.digest) in theirs for file in item[1])]
    state, facts = owned.state(source.handle, FACTS), read_facts(source.handle)
    if not pairs or state.shared:
        return []
    verified = is_verified(state, facts)
    used = {theirs[file.size, file.digest]: file for _, files in pairs for file in files}
    if not verified:
        files = [File(path, file.size, file.digest) for path, file in used.items()]
        if owned.of_other_digest(source.handle, files, workers):
            return []
    result: list[File] = []
    for folder, files in pairs:
        if folder:
            with suppress(FileExistsError):
                os.mkdir(folder, 0o755, dir_fd=partial.handle)
        names = [(theirs[file.size, file.digest], file.path) for file in files]
        result += files if _linked(source, partial, names) else []
    if result and verified:
        # A link changes the time of the inode's change.
        with suppress(PermissionError):
            write_facts(source, owned.state(source.handle, FACTS), facts)
    return result


def _linked(source: OpenFolder, partial: OpenFolder, names: Sequence[tuple[str, str]]) -> bool:
    """Link all of these files, or none."""
    made: list[str] = []
    try:
        for old, new in names:
            os.link(old, new, src_dir_fd=source.handle, dst_dir_fd=partial.handle, follow_symlinks=False)
            made.append(new)
    except OSError as error:
        for new in made:
            os.unlink(new, dir_fd=partial.handle)
        if error.errno not in _REFUSALS:
            raise
        return False
    return True
