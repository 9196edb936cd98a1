"""``tokenized_path=``: the tokenized folders that it names, opened as one."""

from __future__ import annotations

from pairmill import storage
from pairmill.address import refuse
from pairmill.formats.tokenized import Folder, open_folder


def open_tokenized(
    given: str, option: str, *, tolerate_strays: bool, verify: bool = False, held_out: bool = False
) -> Folder:
    """Open what an option names.

    Args:
        given: path or URI.
        option: its name, for messages.
        tolerate_strays, verify, held_out: see :func:`open_folder`.

    Raises:
        InputError: a folder is absent, unfinished or damaged, or has no data set or no held-out rows.
    """
    refuse(given, option, fetch="tokenized")
    uri = storage.normalise(given, option)
    return open_folder(uri, option, tolerate_strays=tolerate_strays, verify=verify, held_out=held_out)
