"""Extracts: the first records of a source, in files that have names of their own."""

from typing import NamedTuple

from pairmill.sources.files.card import CARD


class Extract(NamedTuple):
    """What is known of an extract.

    Args:
        limit: the first this many records were wanted.
        records: how many its files have. Of a file that cannot be cut, all are there, and those wanted are counted.
        listed: paths of all files that the source has where it is published; most of them are not in the extract.
    """

    limit: int
    records: int
    listed: tuple[str, ...]


def least(*limits: int) -> int:
    """Return the smallest of some limits; 0 means none."""
    return min((limit for limit in limits if limit), default=0)


def described(limit: int) -> str:
    """Return an extract in words."""
    return f"first {limit} records"


def extract_path(path: str, limit: int) -> str:
    """Return the path of the extract of a published file. The card is not an extract: it is there as published."""
    folder, slash, name = path.rpartition("/")
    return path if path == CARD else f"{folder}{slash}first-{limit}-of-{name}"


def published_path(path: str, limit: int) -> str:
    """Return the path of the published file that an extract is of."""
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}{name.removeprefix(f'first-{limit}-of-')}"
