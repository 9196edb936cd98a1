"""Finished data that ``rows=``, ``tokenizer=`` and ``tokenized=`` name: what of it is fetched, and where it is then.

What is on the Hub or in a git repository is fetched as the files of a source are: locked, resumed, compared with the
Hub's digests. Its folder is ``<root>/given/<option>/<owner>--<name>/<commit>/``, and the repository's own paths are
below ``files/`` in it. Rows that someone published with their manifest are therefore a finished folder again, and rows
without one have the identity that a plain folder of the same files has.
"""

import logging
from collections.abc import Sequence

from pairmill import storage
from pairmill.address import FORMS, Address
from pairmill.engine.manifest import MANIFEST, fingerprint_from
from pairmill.errors import InputError
from pairmill.formats import given, row_files, rows
from pairmill.formats.tokenizer_file import NAME
from pairmill.formats.tokens import ARRAYS, BYTES, INFO
from pairmill.log import event
from pairmill.net import hub
from pairmill.sources.origin import Git, Hub
from pairmill.sources.parsed import Parsed
from pairmill.sources.source import Context, Source

FILES = "files"
"""The folder below a commit's that the repository's paths are in."""
_ENDINGS = tuple(f".{extension}" for extension in rows.EXTENSIONS)


class GivenData(Source):
    """Finished data on the Hub or in a git repository, fetched as a source is. It has no records to parse.

    Attributes:
        option: what names it: rows, tokenizer or tokenized.
        address: where it is.
        template: the template whose tokens a tokenizer must have; empty = any tokenizer will do.
    """

    licence = ""
    citation = ""

    def __init__(self, option: str, address: Address, template: str = "") -> None:
        name, path = address.name, address.path
        self.option, self.address, self.template = option, address, template
        files = (path, f"{path}/{NAME}") if address.kind == "git" else ()
        origin = Git(name, files, address.revision) if files else Hub(name, (), address.revision)
        vars(self).update(name=f"{option}={address.text}", origin=origin)

    def parse(self, record: object, context: Context) -> Parsed:
        raise NotImplementedError("finished data has no raw records")

    @property
    def repository(self) -> hub.Repository:
        """It on the Hub."""
        form = FORMS[self.address.kind].replace("<owner>/<name>", self.address.name)
        moved = (
            f"write an existing branch, tag or commit: {self.option}={form}; update={self.option} locks it as it is now"
        )
        return hub.Repository(self.address.name, "model" if self.address.kind == "model" else "dataset", moved)

    def folder(self, commit: str) -> str:
        """Return its folder below the root. Two paths of one repository have two folders."""
        path = self.address.path
        part = f"-{fingerprint_from(path)[:8]}" if path else ""
        return f"given/{self.option}/{self.address.slug}/{commit}{part}"

    def place(self, root: str, commit: str) -> str:
        """URI of what was asked for, once it is fetched."""
        top = storage.join(root, *self.folder(commit).split("/"), FILES)
        return storage.join(top, *self.address.path.split("/")) if self.address.path else top

    def chosen(self, paths: Sequence[str]) -> list[str]:
        """Return the files of the repository that are fetched.

        Raises:
            InputError: there is nothing of what the option takes.
        """
        path = self.address.path
        below = f"{path}/" if path else ""
        inside = [item for item in paths if item.startswith(below)]
        names = {item.removeprefix(below) for item in inside}
        if MANIFEST in names:
            return [item for item in inside if not item.removeprefix(below).startswith(".")]
        if self.option == "tokenizer":
            result = [item for item in (path, f"{below}{NAME}") if item in paths]
            expected = NAME
        elif self.option == "tokenized":
            arrays = tuple(f"/{array}.npy" for array in (*ARRAYS, BYTES))
            result = [item for item in inside if item.endswith(arrays)] if INFO in names else []
            result += [item for item in inside if result and item.rsplit("/", 1)[-1] in {INFO, NAME}]
            expected = f"{INFO}, and a folder of five arrays for each data set"
        else:
            result = [below + item for item in given.row_files(names)[1]]
            result += [path] if path in paths and path.endswith(_ENDINGS) else []
            expected = f"files {' or '.join(f'*{ending}' for ending in _ENDINGS)}"
        if not result:
            lines = (
                f"\n  name: my_rows\n  hub: {self.address.name}\n  condition: direct\n  instruction: …\n  response: …"
            )
            raise InputError(
                "no such file at this revision",
                where=self.name,
                got=", ".join(sorted(inside)[:5]) or f"nothing below {path or 'it'}",
                expected=expected,
                hint=f"if these are raw records, put this into my_rows.yaml and write sources=my_rows.yaml:{lines}"
                if self.option == "rows" and inside
                else "check what is after @ and /",
            )
        return sorted(result)

    def check(self, local: str, path: str) -> None:
        """Raise InputError if a fetched file is not what the option takes."""
        if self.option == "tokenizer":
            given.tokenizer_at(local, self.name, self.template)
        if self.option == "rows" and path.endswith(_ENDINGS):
            row_files.require_columns(local, f"{self.name} {path}", f"hub: {self.address.name}")


def places(option: str, uri: str, template: str = "", *, check: bool = True) -> tuple[str, ...]:
    """Return what later stages are given of a place: itself; of a published data set its folders.

    Args:
        option: rows, tokenizer or tokenized.
        template: the template whose tokens a tokenizer must have; empty = any tokenizer will do.
        check: look into the files too.

    Raises:
        InputError: something that a stage would need is missing.
    """
    if option == "tokenizer":
        if check:
            result = given.tokenizer_at(uri, template=template)
            event(f"fetch: {option}={uri}: {result.size:,} bytes", level=logging.INFO)
        return (uri,)
    result = given.rows_at(uri, check=check) if option == "rows" else given.tokenized_at(uri, option)
    what = "files" if option == "rows" else "data sets"
    counted = "" if result.rows is None else f", {result.rows:,} rows"
    event(f"fetch: {option}={uri}: {result.files:,} {what}, {result.size:,} bytes{counted}", level=logging.INFO)
    return result.uris
