"""Headless Chromium by its own command line, and the frame in which Kubeflow's interface shows an HTML artifact."""

import html
import json
import shutil
import struct
import subprocess
import threading
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.helpers import PATIENCE, missing

WIDTH, HEIGHT = 600, 1600
"""Of a frame, in pixels: the interface's side panel, and enough of a report to look at."""

# A sandboxed frame lets nobody look into it, so what is asked of a page stands in it: when it has been drawn, it tells
# the page around, which tells the server. That page is loaded when the server has heard of all: only then the browser
# takes its picture, however slow the machine is.
_PROBE = """<script>addEventListener("load", () => requestAnimationFrame(() => requestAnimationFrame(() => {
  const root = document.documentElement, first = document.querySelector(".verdict");
  const inside = (one) => one.closest("svg,.scroll,details:not([open])");
  const wide = [...document.querySelectorAll("body *")].filter((one) => !inside(one)
    && one.getBoundingClientRect().right > root.clientWidth + 0.5);
  const box = first && first.getBoundingClientRect();
  const seen = first && first.checkVisibility({visibilityProperty: true, opacityProperty: true}) ? first.innerText : "";
  const cells = [...document.querySelectorAll(".scroll table:not(.heat) td")].filter((one) => one.checkVisibility()
    && one.innerText && one.getBoundingClientRect().right > root.clientWidth + 0.5);
  const texts = [...document.querySelectorAll("svg text,.bars span,.key span,dd")].filter((one) => {
    const box = one.getBoundingClientRect();
    return one.checkVisibility() && one.textContent && (box.left < -0.5 || box.right > root.clientWidth + 0.5); });
  const tables = [...document.querySelectorAll("table")];
  const charts = [...document.querySelectorAll("svg")].map((one) => one.getBoundingClientRect().width);
  parent.postMessage({name: "NAME", width: root.clientWidth, needed: root.scrollWidth, verdict: seen,
    bottom: box ? box.bottom : 0, wide: wide.map((one) => one.outerHTML.slice(0, 200)),
    cells: cells.map((one) => one.outerHTML.slice(0, 200)), texts: texts.map((one) => one.outerHTML.slice(0, 200)),
    folded: tables.filter((one) => !one.checkVisibility({contentVisibilityAuto: true})).length, tables: tables.length,
    charts: charts.filter((width) => width), bars: document.querySelectorAll(".bars").length}, "*");
})));</script>"""
_AROUND = f"""<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,">
<style>body{{margin:0;display:flex;transform-origin:0 0}}
iframe{{border:0;flex:none;width:{WIDTH}px;height:{HEIGHT}px}}img{{display:none}}</style>
<script>addEventListener("message", (told) =>
  fetch("/told", {{method: "POST", body: JSON.stringify(told.data)}}));</script>"""
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'"
)
_SECONDS = 40


def resize(monkeypatch: pytest.MonkeyPatch, width: int, height: int = HEIGHT) -> None:
    """Show pages in frames of this size."""
    frame = f"width:{WIDTH}px;height:{HEIGHT}px"
    assert frame in _AROUND
    around = _AROUND.replace(frame, f"width:{width}px;height:{height}px")
    for name, value in (("WIDTH", width), ("HEIGHT", height), ("_AROUND", around)):
        monkeypatch.setattr(f"{__name__}.{name}", value)


@dataclass
class Seen:
    """What a browser had to say.

    Args:
        frames: what the probe in each frame told, by the frame's name.
        console: messages of all frames: errors, and what the content policy refused to load.
        requests: paths that the server was asked for, beside its own.
    """

    frames: dict[str, dict[str, Any]] = field(default_factory=dict)
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


def look(pages: Mapping[str, str], profile: Path) -> Seen:
    """Show the pages in frames beside each other and ask each what it looks like."""
    with _served(pages, 1) as (url, seen):
        done = _chromium(profile, _window(len(pages)), "--dump-dom", url)
    seen.console = [line.split(":CONSOLE", 1)[1] for line in done.stderr.splitlines() if ":CONSOLE" in line]
    return seen


def picture(pages: Mapping[str, str], profile: Path, *, dark: bool, scale: float) -> dict[str, NDArray[np.uint8]]:
    """A picture of each page in its frame, uint8 [height, width, 3], at this scale."""
    target = profile / "picture.png"
    options = [_window(len(pages), scale), f"--screenshot={target}", "--hide-scrollbars"]
    options += [f"--blink-settings=preferredColorScheme={0 if dark else 1}"]
    with _served(pages, scale) as (url, seen):
        done = _chromium(profile, *options, url)
    assert seen.frames.keys() == pages.keys()
    assert target.is_file(), done.stderr[-2000:]
    image = _decoded(target.read_bytes())
    return dict(zip(pages, np.split(image, len(pages), axis=1), strict=True))


def _window(frames: int, scale: float = 1) -> str:
    """So large that all frames are seen: what is not seen, the browser may leave unpainted."""
    return f"--window-size={int(WIDTH * frames * scale)},{int(HEIGHT * scale)}"


def _chromium(profile: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        missing("looking at reports (no chromium, chromium-browser or google-chrome in PATH)")
    # In a container it has neither its own sandbox nor, as a rule, more than 64 MB of shared memory.
    fixed = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    fixed += ["--disable-background-networking", "--enable-logging=stderr", f"--user-data-dir={profile}"]
    # A sandboxed frame has a process of its own, whose drawing reaches the picture when it likes: some were blank.
    fixed += ["--disable-features=IsolateSandboxedIframes"]
    done = subprocess.run(
        [program, *fixed, *arguments], capture_output=True, encoding="utf-8", timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done


@contextmanager
def _served(pages: Mapping[str, str], scale: float) -> Iterator[tuple[str, Seen]]:
    """A page on loopback with all pages in frames, at this scale; gives its URL, and what is learned of them."""
    frames = ""
    for name, page in pages.items():
        whole = page + _PROBE.replace("NAME", name)
        frames += f'<iframe sandbox="allow-scripts" srcdoc="{html.escape(whole)}"></iframe>'
    content = f'{_AROUND}<body style="transform:scale({scale})">{frames}<img src="/all-told">'.encode()
    seen = Seen()
    all_told = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/all-told":
                all_told.wait(_SECONDS)
            elif self.path != "/":
                seen.requests.append(self.path)
            self._answer(content if self.path == "/" else b"")

        def do_POST(self) -> None:
            told = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.frames[told.pop("name")] = told
            if len(seen.frames) == len(pages):
                all_told.set()
            self._answer(b"")

        def _answer(self, data: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Content-Security-Policy", _POLICY)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/", seen
        server.shutdown()


def _decoded(data: bytes) -> NDArray[np.uint8]:
    """The pixels of a PNG of 8 bits a channel that is not interlaced (the format: W3C PNG, 9 Filtering)."""
    width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", data[16:29])
    channels = {2: 3, 6: 4}[colour]
    assert (depth, interlaced) == (8, 0)
    packed, at = b"", 8
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        if data[at + 4 : at + 8] == b"IDAT":
            packed += data[at + 8 : at + 8 + size]
        at += size + 12
    lines = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, 1 + width * channels)
    image = np.zeros((height + 1, width * channels), np.uint8)
    for y, line in enumerate(lines, start=1):
        row, above, kind = line[1:], image[y - 1], line[0]
        if kind in (0, 2):
            image[y] = row + (above if kind == 2 else 0)
        elif kind == 1:
            image[y] = np.cumsum(row.reshape(width, channels), axis=0, dtype=np.uint8).reshape(-1)
        else:
            # One number after another: a list of ints takes a fifth of what arrays of a pixel take.
            made, ups = [0] * channels + row.tolist(), [0] * channels + above.tolist()
            for at in range(channels, len(made)):
                left, up, corner = made[at - channels], ups[at], ups[at - channels]
                made[at] = made[at] + ((left + up) // 2 if kind == 3 else _nearest(left, up, corner)) & 255
            image[y] = made[channels:]
    return image[1:].reshape(height, width, channels)[:, :, :3]


def _nearest(left: int, up: int, corner: int) -> int:
    """Paeth's predictor."""
    to_left, to_up, to_corner = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
    if to_left <= to_up and to_left <= to_corner:
        return left
    return up if to_up <= to_corner else corner
