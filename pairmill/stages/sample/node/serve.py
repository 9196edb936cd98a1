"""``serve``: reports what a node has over HTTP, for the kubelet's probes and for Prometheus. It only reads.

Metrics are in Prometheus's text format, version 0.0.4.
"""

from __future__ import annotations

import errno
import json
import os
import socket
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairmill import log, storage
from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import MANIFEST, Manifest, fingerprint_from
from pairmill.engine.options import option
from pairmill.errors import InputError, UsageError
from pairmill.formats.sample_folder import PLAN, folder_of
from pairmill.stages.sample.node.facts import FACTS

if TYPE_CHECKING:
    from http.server import ThreadingHTTPServer

_TEXT = "text/plain; charset=utf-8"
_METRICS = "text/plain; version=0.0.4; charset=utf-8"
PORT = 9464


@dataclass(kw_only=True)
class ServeConfig:
    """Report a node's sample over HTTP: /metrics for Prometheus, /ready, /healthz, /plan."""

    path: str = option(help="folder of the node, or a sampled folder")
    port: int = option(PORT, help="TCP port")


@dataclass(frozen=True)
class State:
    """What a folder holds at this moment; ``missing`` says why there is no complete sample; "" if there is."""

    folder: Path
    manifest: Manifest | None
    missing: str


class Sampled:
    """A node's folder, or a sampled folder."""

    def __init__(self, path: str, plan: str = "") -> None:
        self._path, self._plan = path, plan

    def look(self) -> State:
        """Return its state now; with a plan, that of the plan's sample."""
        folder = folder_of(self._path, "path", self._plan)
        try:
            # OSError: another run may replace the folder between two looks.
            manifest = manifests.read(str(folder)) if (folder / MANIFEST).is_file() else None
            if manifest is None:
                return State(folder, None, f"{folder} has no finished sample")
            if self._plan not in {"", manifest.fingerprint}:
                return State(folder, None, f"{folder} has another sample, {manifest.fingerprint}")
            wrong = manifests.find_damage(str(folder), manifest.files)
        except (InputError, OSError) as error:
            return State(folder, None, str(error))
        return State(folder, manifest, "; ".join(wrong[:3]))


def metrics(state: State, path: str) -> str:
    """Return the page for Prometheus."""
    lines: list[str] = []

    def gauge(name: str, meaning: str, value: float, labels: str = "") -> None:
        lines.extend([f"# HELP pairmill_{name} {meaning}", f"# TYPE pairmill_{name} gauge"])
        lines.append(f"pairmill_{name}{labels} {value}")

    gauge("sample_ready", "1 if the current sample is complete.", int(not state.missing))
    manifest, facts = state.manifest, {}
    if manifest is not None:
        measures, files = manifest.ledger.measures, [[file.path, file.size, file.digest] for file in manifest.files]
        labels = f'{{fingerprint="{manifest.fingerprint}",digest="{fingerprint_from(files)}"}}'
        gauge("sample_info", "The sample; digest is over its files and equal on all nodes.", 1, labels)
        gauge("sample_bytes", "Bytes of its files.", sum(file.size for file in manifest.files))
        gauge("sample_rows", "Rows over all epochs.", manifest.ledger.rows_out)
        gauge("sample_unique_rows", "Rows, each counted once.", manifest.ledger.rows_kept)
        gauge("sample_tokens", "Tokens over all epochs.", measures["tokens_sampled"])
        gauge("sample_epochs", "Epochs.", measures["epochs"])
        facts = _facts(state.folder)
    if "seconds" in facts:
        gauge("sample_seconds", "Seconds that it took on this node.", facts["seconds"])
    if "read_bytes" in facts:
        gauge("sample_read_bytes", "Bytes read for it from storage.", facts["read_bytes"])
    system = os.statvfs(path)
    gauge("node_free_bytes", "Bytes free where samples are.", system.f_bavail * system.f_frsize)
    return "\n".join(lines) + "\n"


def _facts(folder: Path) -> dict[str, float]:
    try:
        result: dict[str, float] = json.loads((folder / FACTS).read_text())
        return result
    except (OSError, ValueError):
        return {}


def server(config: ServeConfig) -> ThreadingHTTPServer:
    """Return the server, bound to its port but not serving yet.

    Raises:
        InputError: the folder does not exist.
        UsageError: the port is not valid, or is in use.
    """
    # Imported here because only this command needs a server, and every start imports this module.
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    path = str(storage.local_path(storage.normalise(config.path, "path")))
    if not os.path.isdir(path):
        raise InputError("not a folder", where=f"path={path}", hint="check the mount of /dev/shm/pairmill")
    sampled = Sampled(config.path)

    class Handler(BaseHTTPRequestHandler):
        """Answers GET; ignores everything in the request but its path."""

        server_version, sys_version = "pairmill", ""
        timeout = 10

        def do_GET(self) -> None:
            page = self.path.partition("?")[0]
            if page == "/healthz":
                return self._answer(HTTPStatus.OK, "ok\n")
            if page not in {"/metrics", "/ready", "/plan"}:
                return self._answer(HTTPStatus.NOT_FOUND, "one of /metrics /ready /healthz /plan\n")
            state = sampled.look()
            if page == "/metrics":
                return self._answer(HTTPStatus.OK, metrics(state, path), _METRICS)
            if state.missing or state.manifest is None:
                return self._answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{state.missing}\n")
            return self._answer(HTTPStatus.OK, f"{state.manifest.fingerprint}\n" if page == "/plan" else "ready\n")

        def _answer(self, status: HTTPStatus, text: str, kind: str = _TEXT) -> None:
            data = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Do not log a probe every few seconds."""

    running = ThreadingHTTPServer(("", 0), Handler, bind_and_activate=False)
    running.socket.close()
    try:
        running.socket = _listen(config.port)
    except (OSError, OverflowError) as error:
        raise UsageError(
            "cannot listen", where=f"port={config.port}", got=str(error), expected="a free port"
        ) from error
    running.server_address = running.socket.getsockname()
    return running


def _listen(port: int) -> socket.socket:
    """Return a socket for all addresses of both IP versions; for IPv4 alone if the machine has no other."""
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        except OSError as error:
            # The kernel has IPv6, but net.ipv6.conf.all.disable_ipv6 switches it off.
            if error.errno not in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}:
                raise
    return socket.create_server(("", port))


def serve(config: ServeConfig) -> str:
    """Serve until the process is ended."""
    with server(config) as running:
        log.event(f"serving {config.path} on port {running.server_address[1]}; {PLAN} names the sample")
        running.serve_forever()
    return ""
