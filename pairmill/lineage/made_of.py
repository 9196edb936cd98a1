"""Which results below a root were made of which.

Most inputs are named by the fingerprint of their folder. A tokenizer and a mixture are named by content, and raw files
by that of the source: for these the folders below the root are looked into, and only where an input is one.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Final

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.engine.listing import Head, ResultFolder, read_head
from pairmill.mixture.plan import BUCKETS, identity
from pairmill.mixture.plan import NAME as MIXTURE

# Not of formats.tokenizer_file, which imports the Hub's client: a tenth of the time of a status.
_TOKENIZER: Final = "tokenizer.json"


class Origins:
    """The finished results below a root, and what each was made of.

    Args:
        results: of the root, as :func:`pairmill.engine.listing.list_results` gives them.
        shown: those among which tokenizers, mixtures and raw data are looked for; each is read.
    """

    def __init__(self, results: Iterable[ResultFolder], shown: Sequence[ResultFolder]) -> None:
        self._results = {item.fingerprint: item for item in results if item.finished is not None}
        self._shown = [item for item in shown if item.finished is not None]
        self._heads: dict[str, Head] = {}

    def head(self, item: ResultFolder) -> Head:
        """Return the head of a result, read once."""
        if item.uri not in self._heads:
            self._heads[item.uri] = read_head(item.uri)
        return self._heads[item.uri]

    def parents(self, item: ResultFolder) -> list[ResultFolder]:
        """Return the results that a result was made of, each once."""
        parents: dict[str, ResultFolder] = {}
        for ref in self.head(item).inputs:
            if ref.fingerprint in self._results:
                parents[ref.fingerprint] = self._results[ref.fingerprint]
            elif ref.role in ("tokenizer", "mixture"):
                named = (self._tokenizers if ref.role == "tokenizer" else self._mixtures).get(ref.fingerprint, [])
                parents |= {other.fingerprint: other for other in self._alike(item, named)}
            elif item.folder == "clean":
                parents |= {other.fingerprint: other for other in self._fetched.get(ref.fingerprint, ())}
        parents.pop(item.fingerprint, None)
        return list(parents.values())

    def _alike(self, item: ResultFolder, named: list[ResultFolder]) -> list[ResultFolder]:
        """Return, of results with the same content, those that read what this one reads; all if none does."""
        read = {ref.fingerprint for ref in self.head(item).inputs}
        return [
            other for other in named if not read.isdisjoint(ref.fingerprint for ref in self.head(other).inputs)
        ] or named

    @cached_property
    def _tokenizers(self) -> dict[str, list[ResultFolder]]:
        return self._by_content("tokenizer", lambda item: hashlib.sha256(_read(item, _TOKENIZER)).hexdigest()[:16])

    @cached_property
    def _mixtures(self) -> dict[str, list[ResultFolder]]:
        return self._by_content("mix", _mixture_digest)

    @cached_property
    def _fetched(self) -> dict[str, list[ResultFolder]]:
        # What fetch has brought and clean has read are the same inputs, by the content of each source.
        result: dict[str, list[ResultFolder]] = {}
        for item in self._shown:
            for ref in self.head(item).inputs if item.folder == "fetch" else ():
                result.setdefault(ref.fingerprint, []).append(item)
        return result

    def _by_content(self, folder: str, digest: Callable[[ResultFolder], str]) -> dict[str, list[ResultFolder]]:
        result: dict[str, list[ResultFolder]] = {}
        for item in self._shown:
            if item.folder == folder:
                result.setdefault(digest(item), []).append(item)
        return result


def _read(item: ResultFolder, name: str) -> bytes:
    """Read a file of a result; of one that lacks it, nothing."""
    uri = storage.join(item.uri, name)
    store = storage.store_for(uri)
    return store.read(uri) if store.exists(uri) else b""


def _mixture_digest(item: ResultFolder) -> str:
    manifest = manifests.read(item.uri, refuse_begun=False)
    files = manifest.files if manifest is not None else []
    buckets = {
        file.path.removeprefix(f"{BUCKETS}/").removesuffix(".npy"): file.digest
        for file in files
        if file.path.startswith(f"{BUCKETS}/")
    }
    return identity(_read(item, MIXTURE), buckets)
