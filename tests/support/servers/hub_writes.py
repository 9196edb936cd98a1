"""A Hub that takes commits: the part of its API by which huggingface_hub 1.33 creates repositories and uploads."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from tests.support.servers.downloads import Hub, Request, _json, _Refusal, _Reply, _signature


class WritableHub(Hub):
    """Takes what an account with a token writes.

    Attributes:
        sent: digests of what the CDN took, in order.
        at_write: called before and after each request that writes.
    """

    def __init__(self, *, page_size: int = 1000) -> None:
        super().__init__(page_size=page_size)
        self.sent: list[str] = []
        self.at_write: Callable[[], object] = lambda: None

    def tamper(self, repository: str, path: str, content: bytes) -> str:
        """Replace a file by a commit of somebody else."""
        files = self.holds(repository)
        return self.add(repository, {**files, path: content})

    def holds(self, repository: str, revision: str = "main") -> dict[str, bytes]:
        """The files of a branch."""
        taken = self._repositories[repository]
        return {path: file.content for path, file in taken.commits[taken.refs[revision]].files.items()}

    def commits(self, repository: str) -> int:
        """How many commits there are."""
        return len(self._repositories[repository].commits)

    def _answer(self, path: str, request: Request, body: bytes) -> _Reply:
        writes = request.method in ("PUT", "POST")
        if writes:
            self.at_write()
        reply = self._answered(path, request, body)
        if writes:
            self.at_write()
        return reply

    def _answered(self, path: str, request: Request, body: bytes) -> _Reply:
        segments = [unquote(segment) for segment in path.split("/")[1:]]
        if request.method == "PUT" and request.server == "cdn":
            return self._store(segments, body)
        if request.method == "POST" and request.server == "hub":
            if request.headers.get("authorization", "").removeprefix("Bearer ") not in self._tokens:
                raise _Refusal(401, "", "Invalid username or password.")
            match segments:
                case ["api", "repos", "create"]:
                    return self._create(json.loads(body))
                case ["api", "datasets", _, _, "preupload", _]:
                    files = json.loads(body)["files"]
                    modes = [
                        {"path": it["path"], "uploadMode": self._mode(it["path"], it["size"]), "shouldIgnore": False}
                        for it in files
                    ]
                    return _json({"files": modes})
                case ["api", "datasets", owner, name, "commit", revision]:
                    return self._take_commit(f"{owner}/{name}", revision, body)
                case ["datasets", _, _, "info", "lfs", "objects", "batch"]:
                    return self._batch(json.loads(body))
                case ["api", "validate-yaml"]:
                    return _json({"errors": [], "warnings": []})
        return super()._answer(path, request, body)

    def _mode(self, path: str, size: int) -> str:
        return "regular" if size < 10_000 and path.endswith((".md", ".json", ".txt", ".jsonl")) else "lfs"

    def _create(self, asked: dict[str, Any]) -> _Reply:
        name = "/".join(filter(None, (asked.get("organization"), asked["name"])))
        url = f"{self.url}/datasets/{name}"
        if name in self._repositories:
            return _Reply(
                409, {"Content-Type": "application/json"}, json.dumps({"error": "exists", "url": url}).encode()
            )
        self.add(name, {".gitattributes": b"* -text\n"}, private=bool(asked.get("private")))
        self._tokens = {token: {*names, name} for token, names in self._tokens.items()}
        return _json({"url": url, "name": name})

    def _batch(self, asked: dict[str, Any]) -> _Reply:
        objects = []
        for item in asked["objects"]:
            place = f"{self.cdn}/upload/{item['oid']}?Signature={_signature(item['oid'])}"
            action = {} if item["oid"] in self._blobs else {"actions": {"upload": {"href": place, "header": {}}}}
            objects.append({**item, **action})
        return _json({"transfer": "basic", "objects": objects})

    def _store(self, segments: list[str], body: bytes) -> _Reply:
        if hashlib.sha256(body).hexdigest() != segments[1]:  # a client that was killed amid a body
            raise _Refusal(400, "", "IncompleteBody")
        self._blobs[segments[1]] = body
        self.sent.append(segments[1])
        return _Reply(200)

    def _take_commit(self, name: str, revision: str, body: bytes) -> _Reply:
        files = self.holds(name, revision)
        lfs = {path for path, file in self._files(name, revision).items() if file.pointer}
        for line in body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
                lfs.discard(value["path"])
            elif entry["key"] == "lfsFile":
                if value["oid"] not in self._blobs:
                    raise _Refusal(400, "", f"{value['path']}: the LFS object does not exist")
                files[value["path"]] = self._blobs[value["oid"]]
                lfs.add(value["path"])
            elif entry["key"] == "deletedFile":
                del files[value["path"]]
        commit = self.add(name, files, lfs=lfs, revision=revision)
        url = f"{self.url}/datasets/{name}/commit/{commit}"
        return _json({"success": True, "commitOid": commit, "commitUrl": url, "hookOutput": ""})

    def _files(self, name: str, revision: str) -> dict[str, Any]:
        taken = self._repositories[name]
        return taken.commits[taken.refs[revision]].files
