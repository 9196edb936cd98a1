"""Files that are shared on Google Drive: from the link that people share to the address of the bytes.

A large file comes after a page that asks whether one wants it although Google has not scanned it for viruses. The page
has a form, or, as older ones, a link with the token of a cookie.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit

from pairmill.errors import InputError, StorageError
from pairmill.net import http

if TYPE_CHECKING:
    import httpx

ENDPOINT = "https://drive.google.com"
_HOSTS = ("drive.google.com", "docs.google.com", "drive.usercontent.google.com")
_PAGES = 4
_PAGE_BYTES = 1 << 20
_INSTEAD = "run the same command later, or pass the file that you have as raw="


@dataclass(frozen=True)
class Address:
    """Where the bytes of a file are.

    Args:
        headers: to send.
        version: as :func:`pairmill.net.http.version` names it; empty = not asked for.
    """

    url: str
    headers: dict[str, str] = field(default_factory=dict)
    version: str = ""


def address_of(url: str) -> Address:
    """Return the address of the bytes of a file over https: of a shared link what is beyond its pages, else the link
    itself.

    Raises:
        InputError: the link names no file, or the file is gone or not shared with everybody.
        StorageError: no answer, or a page in place of the file: too many people have fetched it today.
    """
    if urlsplit(url).hostname not in _HOSTS:
        return Address(url)
    return http.request(
        url, lambda: _beyond_pages(url, f"{ENDPOINT}/uc?{urlencode({'export': 'download', 'id': _id(url)})}")
    )


def download(url: str, local: Path, note: Path, *, expected: str, hint: str) -> None:
    """Download a file as :func:`pairmill.net.http.download` does; the URL may be a shared link."""
    address = address_of(url)
    require = require_file if address.version else None
    http.download(address.url, local, note, expected=expected, headers=address.headers, require=require, hint=hint)


def require_file(response: httpx.Response) -> None:
    """Raise StorageError if an answer is a page: a quota may end between two parts of a file."""
    if response.headers.get("content-type", "").startswith("text/html"):
        response.read()
        raise _no_file(str(response.url), response.text)


def _id(url: str) -> str:
    parts = urlsplit(url)
    match = re.search(r"/d/([\w-]{10,})", parts.path)
    result = match[1] if match else "".join(parse_qs(parts.query).get("id", []))
    if not re.fullmatch(r"[\w-]{10,}", result):
        expected = "https://drive.google.com/file/d/<id>/view"
        raise InputError("not a link to a file of Google Drive", where=url, expected=expected, hint="share a file")
    return result


def _beyond_pages(link: str, url: str) -> Address:
    with http.client() as client:
        for _ in range(_PAGES):
            with client.stream("GET", url) as response:
                http.checked(response, link, lambda refused: _refuse(refused, link))
                cookies = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
                if not response.headers.get("content-type", "").startswith("text/html"):
                    headers = {"Cookie": cookies} if cookies else {}
                    return Address(str(response.url), headers, http.version_of(response))
                page = b""
                for part in response.iter_bytes():
                    page += part
                    if len(page) > _PAGE_BYTES:
                        break
                text, here = page.decode("utf-8", "replace"), str(response.url)
            url = _next(text, here, dict(client.cookies))
            if not url:
                break
    raise _no_file(link, text)


def _refuse(response: httpx.Response, link: str) -> None:
    if response.status_code in {401, 403}:
        response.read()
        if "quota" in response.text.lower():
            raise _no_file(link, response.text)
        raise InputError(
            "the file is not shared with everybody, or no longer",
            where=link,
            got=f"status {response.status_code}",
            hint="pass the file that you have as raw=, or leave the source out; who owns it can share it by its link",
        )


def _next(page: str, here: str, cookies: dict[str, str]) -> str:
    """Return the address that a page asks to confirm; empty if it asks for nothing."""
    form = _Form()
    form.feed(page)
    url = ""
    if form.action and "id" in form.fields:
        url = f"{urljoin(here, form.action)}?{urlencode(form.fields)}"
    else:
        link = re.search(r'href="([^"]*[?&;]confirm=[^"]*)"', page)
        token = next((value for name, value in cookies.items() if name.startswith("download_warning")), "")
        if link:
            url = urljoin(here, html.unescape(link[1]))
        elif token:
            url = f"{here}&{urlencode({'confirm': token})}"
    host = urlsplit(url).hostname
    return url if host in {*_HOSTS, urlsplit(ENDPOINT).hostname} else ""


class _Form(HTMLParser):
    """The form to download: its action and its fields."""

    def __init__(self) -> None:
        super().__init__()
        self.action, self.fields = "", dict[str, str]()
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._inside = "download" in given.get("action", "") + given.get("id", "")
            self.action = given.get("action", "") if self._inside else self.action
        elif tag == "input" and self._inside and given.get("type") == "hidden" and given.get("name"):
            self.fields[given["name"]] = given.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "form"


def _title(page: str) -> str:
    result = re.search(r"<title[^>]*>([^<]*)", page, re.IGNORECASE)
    return " ".join(html.unescape(result[1]).split())[:200] if result else ""


def _no_file(where: str, page: str) -> StorageError:
    if "quota" in page.lower() or "Too many users have viewed or downloaded" in page:
        hint = (
            "Google Drive lets everybody fetch it again after up to 24 hours: run the same command then, or pass raw="
        )
        return StorageError("too many people have fetched the file today", where=where, got=_title(page), hint=hint)
    return StorageError("a page came in place of the file", where=where, got=_title(page) or "no title", hint=_INSTEAD)
