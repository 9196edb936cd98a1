"""A stand-in for Google Drive: shared links, the page before a large file in both of its forms, and the quota.

with Drive() as drive:
    link = drive.share("1AbCdEfGhIjKlMn", content, page="form")
    monkeypatch.setattr(pairmill.net.drive, "ENDPOINT", drive.url)
"""

import hashlib
from typing import Literal
from urllib.parse import parse_qs, urlencode

from tests.support.servers.downloads import Request, _ranged, _Reply, _Server

Page = Literal["", "form", "cookie", "quota", "login"]

_FORM = """<!DOCTYPE html><html><head><title>Google Drive - Virus scan warning</title></head><body>
<p>This file is too large for Google to scan for viruses. Would you still like to download this file?</p>
<form action="/search"><input type="hidden" name="q" value="no"></form>
<form id="download-form" action="{url}/download" method="get"><input type="submit" value="Download anyway"/>
<input type="hidden" name="id" value="{id}"><input type="hidden" name="export" value="download">
<input type="hidden" name="confirm" value="t"><input type="hidden" name="uuid" value="{token}"></form></body></html>"""
_LINK = """<html><head><title>Google Drive - Virus scan warning</title></head><body>
<a id="uc-download-link" href="/uc?export=download&amp;confirm={token}&amp;id={id}">Download anyway</a></body></html>"""
_QUOTA = """<html><head><title>Google Drive - Quota exceeded</title></head><body>
<p>Sorry, you can't view or download this file at this time.</p>
<p>Too many users have viewed or downloaded this file recently.</p></body></html>"""
_HTML = {"Content-Type": "text/html; charset=utf-8"}


class Drive(_Server):
    """Files by their ids; ``page`` is what comes before one."""

    def __init__(self) -> None:
        super().__init__("drive")
        self.shared: dict[str, tuple[bytes, Page]] = {}

    def share(self, name: str, content: bytes, page: Page = "") -> str:
        """Share a file, or another content or page in its place; the link that people pass on."""
        self.shared[name] = content, page
        return f"https://drive.google.com/file/d/{name}/view?usp=sharing"

    def _answer(self, path: str, request: Request, body: bytes) -> _Reply:
        query = {key: values[-1] for key, values in parse_qs(request.query).items()}
        name = query.get("id", "")
        if path not in {"/uc", "/download"} or name not in self.shared:
            return _Reply(404, _HTML, b"<html><title>Error 404 (Not Found)!!1</title></html>")
        content, page = self.shared[name]
        token = hashlib.sha256(name.encode()).hexdigest()[:8]
        if path == "/uc" and page != "cookie":
            return _Reply(303, {"Location": f"{self.url}/download?{urlencode(query)}"})
        if page == "quota":
            return _Reply(200, _HTML, _QUOTA.encode())
        if page == "login":
            return _Reply(403, _HTML, b"<html><title>Google Drive - Access denied</title></html>")
        if page == "form" and (query.get("confirm"), query.get("uuid")) != ("t", token):
            return _Reply(200, _HTML, _FORM.format(url=self.url, id=name, token=token).encode())
        if page == "cookie":
            cookie = f"download_warning_1_{name}={token}"
            if query.get("confirm") != token or cookie not in request.headers.get("cookie", ""):
                return _Reply(200, {**_HTML, "Set-Cookie": cookie}, _LINK.format(id=name, token=token).encode())
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Disposition": 'attachment; filename="amps.tar.gz"',
            "Last-Modified": "Mon, 01 Mar 2021 00:00:00 GMT",
            "Accept-Ranges": "bytes",
        }
        return _ranged(request, content, headers)
