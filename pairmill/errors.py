"""One family of exceptions. Each says what is wrong, where, what was found, what was expected, and what to do next."""

import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self


class PairmillError(Exception):
    """Base of every error that pairmill raises on purpose.

    Args:
        what: what is wrong, in one clause.
        where: the option, file and row, or stage.
        got: what was found.
        expected: what would be right.
        hint: the next step.
    """

    exit_code = 5

    def __init__(self, what: str, *, where: str = "", got: str = "", expected: str = "", hint: str = "") -> None:
        self.what, self.where, self.got, self.expected, self.hint = what, where, got, expected, hint
        parts = [what]
        if got:
            parts.append(f"got {got}")
        if expected:
            parts.append(f"expected {expected}")
        if hint:
            parts.append(hint)
        super().__init__((f"{where}: " if where else "") + "; ".join(parts))

    def moved(self, where: str, hint: str = "") -> Self:
        """Return the same error at another place, with another hint if there is one."""
        return type(self)(self.what, where=where, got=self.got, expected=self.expected, hint=hint or self.hint)

    # Exceptions are pickled by the process pool, which by default calls the class with `args` only.
    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.what, self.where, self.got, self.expected, self.hint)


def _rebuild(kind: type[PairmillError], what: str, where: str, got: str, expected: str, hint: str) -> PairmillError:
    return kind(what, where=where, got=got, expected=expected, hint=hint)


class UsageError(PairmillError):
    """An option or a configuration file is wrong. Exit code 2."""

    exit_code = 2


class InputError(PairmillError):
    """Input is absent, empty, unfinished or malformed. Exit code 3."""

    exit_code = 3


class Changed(InputError):
    """The bytes that were read are not those that were digested before."""


class StorageError(PairmillError):
    """Storage refused: no space, no permission, no such bucket. Exit code 4."""

    exit_code = 4


class InternalError(PairmillError):
    """A defect of pairmill, or a killed worker. Exit code 5."""

    exit_code = 5


_SHOWN = 20


class StageFailure(PairmillError):
    """One or more shards failed; the others are committed. The exit code is the highest of theirs."""

    def __init__(self, stage: str, failures: list[tuple[str, PairmillError]], total: int) -> None:
        self.failures = failures
        lines = "".join(f"\n  {name}: {error}" for name, error in failures[:_SHOWN])
        if len(failures) > _SHOWN:
            lines += f"\n  and {len(failures) - _SHOWN} more"
        super().__init__(
            f"{len(failures)} of {total} shards failed; the others are committed and will be reused{lines}", where=stage
        )
        self.exit_code = max(error.exit_code for _, error in failures)

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a StageFailure is not pickled: only the process that runs the stage raises it")


class Refusals(PairmillError):
    """Several refusals at once, a line each. The exit code is the highest of theirs."""

    def __init__(self, errors: Sequence[PairmillError]) -> None:
        self.errors = errors
        super().__init__(f"{len(errors)} things to mend:" + "".join(f"\n  {error}" for error in errors))
        self.exit_code = max(error.exit_code for error in errors)

    def __reduce__(self) -> tuple[object, ...]:
        return Refusals, (self.errors,)


@dataclass
class Attempts:
    """Collects what is refused, so that a person mends all of it before the next try."""

    errors: list[PairmillError] = field(default_factory=list)

    @contextmanager
    def each(self) -> Iterator[None]:
        """Go on after an error of what is done within; what is told already is not told again."""
        try:
            yield
        except PairmillError as error:
            told = {(known.where, known.what) for known in self.errors}
            every = error.errors if isinstance(error, Refusals) else [error]
            self.errors += [item for item in every if (item.where, item.what) not in told]

    def refuse(self) -> None:
        """Raise what was collected: the only error itself, or several as Refusals; nothing if all went well."""
        if self.errors:
            raise self.errors[0] if len(self.errors) == 1 else Refusals(self.errors)


SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The errno values of a full disk, quota or file system."""
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.ENOTDIR, errno.EISDIR}


def from_os_error(error: OSError, where: str) -> PairmillError:
    """Turn an OSError into one of ours: absence into InputError, anything else into StorageError."""
    path = str(error.filename) if error.filename else where
    text = error.strerror or str(error)
    if error.errno in SPACE:
        return StorageError(
            "no space left", where=path, got=text, hint="free space or choose another folder, then run the same command"
        )
    if error.errno == errno.ENOENT:
        return InputError("does not exist", where=path, hint="check the path")
    if error.errno == errno.ENAMETOOLONG:
        longest = max(path.split("/"), key=lambda name: len(os.fsencode(name)))
        got = f"{len(os.fsencode(longest))} bytes, {longest!r}"
        return InputError("a name is too long for this file system", where=path, got=got, hint="choose a shorter one")
    if error.errno in _REFUSED:
        return StorageError("storage refused", where=path, got=text, hint="check permissions and the path")
    return StorageError("storage failed", where=path, got=text)


def nearest_name(wrong: str, names: Iterable[str]) -> str | None:
    """Return the name that is spelled most like a wrong one, in any case; None if none is near."""
    import difflib

    folded = {name.lower(): name for name in names}
    close = difflib.get_close_matches(wrong.lower(), folded, n=1)
    return folded[close[0]] if close else None


def did_you_mean(wrong: str, names: Iterable[str], otherwise: str = "") -> str:
    """Return the hint of an error that names the nearest name, or ``otherwise``."""
    near = nearest_name(wrong, names)
    return otherwise if near is None else f"did you mean {near!r}?"
