"""Object stores on loopback: versitygw for S3, fake-gcs-server for Google Cloud Storage, as `make object-stores` builds
them from the commands in servers/ and the versions in its go.mod.

    with S3Server(folder) as server:
        uri = server.bucket()          # s3://…, new and empty
        …                              # a process with server.environment() in its environment

tests/support/objectstores/fixtures.py has them as fixtures.
"""

import contextlib
import itertools
import json
import os
import socket
import subprocess
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from tests.support.helpers import PATIENCE, REPOSITORY, until

BUILT = Path(os.environ.get("PAIRMILL_OBJECT_STORES", REPOSITORY / "build" / "object-stores"))
VERSITYGW, FAKE_GCS_SERVER = BUILT / "versitygw", BUILT / "fake-gcs-server"
ACCESS_KEY, SECRET_KEY = "pairmill-access", "pairmill-secret"


def missing() -> str:
    """Why no server can be started, in one line; empty if all are built."""
    absent = [os.path.relpath(path, REPOSITORY) for path in (VERSITYGW, FAKE_GCS_SERVER) if not path.exists()]
    return f"these tests talk to servers that are not built ({', '.join(absent)}): make object-stores" if absent else ""


@contextlib.contextmanager
def _reserved_port() -> Iterator[int]:
    """A port that is given to nobody meanwhile but to who asks for it by its number, as a server here does."""
    with contextlib.closing(socket.socket()) as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield int(holder.getsockname()[1])


class Server(ABC):
    """A server process with its objects below ``folder``; ``url`` is where it listens."""

    scheme: str

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count()
        self.url = ""

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        with _reserved_port() as port, (self._folder / "server.log").open("wb") as log:
            self.url = f"http://127.0.0.1:{port}"
            self._process = subprocess.Popen(self._command(port), stdout=log, stderr=log)
            try:
                until(self._answers, f"{self.scheme}:// at {self.url}")
            except BaseException:
                self.__exit__()
                raise
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()

    def bucket(self) -> str:
        """URI of a new bucket."""
        name = f"bucket-{os.getpid()}-{next(self._numbers)}"
        self._make(name)
        return f"{self.scheme}://{name}"

    @abstractmethod
    def environment(self, url: str = "") -> dict[str, str]:
        """Variables that lead a process to this server, or to a proxy of it at ``url``."""

    @abstractmethod
    def _command(self, port: int) -> list[str]: ...

    @abstractmethod
    def _make(self, bucket: str) -> None: ...

    def _answers(self) -> bool:
        assert self._process.poll() is None, (self._folder / "server.log").read_text()
        try:
            urllib.request.urlopen(self.url, timeout=PATIENCE).close()
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False
        return True


class S3Server(Server):
    scheme = "s3"

    def environment(self, url: str = "") -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL_S3": url or self.url,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def _command(self, port: int) -> list[str]:
        (self._folder / "buckets").mkdir(exist_ok=True)
        keys = ["-access", ACCESS_KEY, "-secret", SECRET_KEY]
        return [str(VERSITYGW), "-port", f"127.0.0.1:{port}", *keys, "-folder", str(self._folder / "buckets")]

    def _make(self, bucket: str) -> None:
        # To this backend a bucket is a folder, and what it holds below are files.
        (self._folder / "buckets" / bucket).mkdir()


class GcsServer(Server):
    scheme = "gs"

    def environment(self, url: str = "") -> dict[str, str]:
        return {"STORAGE_EMULATOR_HOST": url or self.url}

    def _command(self, port: int) -> list[str]:
        return [str(FAKE_GCS_SERVER), "-listen", f"127.0.0.1:{port}", "-external-url", self.url]

    def _make(self, bucket: str) -> None:
        request = urllib.request.Request(
            f"{self.url}/storage/v1/b?project=tests",
            json.dumps({"name": bucket}).encode(),
            {"Content-Type": "application/json"},
        )
        urllib.request.urlopen(request, timeout=PATIENCE).close()
