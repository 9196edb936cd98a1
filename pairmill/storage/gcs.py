"""``gs://`` by google-cloud-storage, with Application Default Credentials (Workload Identity, a file, gcloud's login).

``STORAGE_EMULATOR_HOST`` is the address of an emulator, which is used without credentials.
"""

from __future__ import annotations

import base64
import functools
import http.client
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import google_crc32c
import requests
import urllib3
from google.api_core.exceptions import GoogleAPICallError, GoogleAPIError, RetryError, from_http_response
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, TransportError
from google.cloud.storage import Client
from google.cloud.storage.exceptions import DataCorruption
from google.cloud.storage.retry import DEFAULT_RETRY
from requests.adapters import HTTPAdapter

from pairmill.errors import StorageError
from pairmill.retry import Again, delays, patience, timeouts
from pairmill.storage.remote import Body, Place, RemoteStore, Stat, no_credentials, refusal

CHUNK = 16 << 20
"""Bytes of each request of a resumable upload; one is in memory at a time."""
_TYPE = "application/octet-stream"
_CREDENTIALS = "bind the pod's service account (Workload Identity), or run: gcloud auth application-default login"


class GcsStore(RemoteStore):
    """Buckets of Google Cloud Storage. Objects of more than PART bytes are written by resumable uploads."""

    loggers = ("google", "urllib3")

    def _connected(self) -> Any:

        # For traces, the client would read the bucket's metadata, which takes a permission that nothing else needs.
        os.environ.setdefault("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
        client = Client(project=None)  # not needed, and not every login has one
        # By default the pool keeps ten connections, and further threads connect anew each time.
        for scheme in ("https://", "http://"):
            client._http.mount(scheme, HTTPAdapter(pool_maxsize=64))
        return client

    @contextmanager
    def _failures(self, place: Place) -> Iterator[None]:
        try:
            yield
        except GoogleAPICallError as error:
            headers = getattr(error.response, "headers", {})
            detail = "; ".join(str(item.get("message", "")) for item in error.errors if isinstance(item, dict))
            if error.code == 400 and "CRC32C" in detail:
                raise Again(f"400 {detail}") from None
            raise refusal(place, int(error.code or 0), detail, headers) from None
        except DefaultCredentialsError as error:
            raise no_credentials(place, type(error).__name__, _CREDENTIALS) from None
        except GoogleAuthError as error:
            if isinstance(error, TransportError) or error.retryable:
                raise Again(type(error).__name__) from None
            raise no_credentials(place, type(error).__name__, _CREDENTIALS) from None
        except (
            requests.RequestException,
            urllib3.exceptions.HTTPError,
            http.client.HTTPException,
            ConnectionError,
            TimeoutError,
            DataCorruption,
        ) as error:
            # Their messages contain URLs with secrets.
            raise Again(f"{type(error).__name__} at {self._client.api_endpoint}") from None
        except RetryError as error:
            with self._failures(place):
                raise error.cause from None
        except GoogleAPIError as error:
            raise StorageError("storage failed", where=place.uri, got=type(error).__name__) from None

    def _blob(self, place: Place, **options: Any) -> Any:
        return self._client.bucket(place.bucket).blob(place.key, **options)

    def _stat(self, place: Place) -> Stat:
        blob = self._blob(place)
        blob.reload(retry=None, timeout=timeouts())
        return Stat(blob.size, str(blob.generation), blob.updated)

    def _get(self, place: Place, start: int, end: int, body: Body) -> None:
        # The client's own download is one piece in memory, or pieces of 8 KiB, which take three times as long.
        blob = self._blob(place)
        url = f"{self._client.api_endpoint}/download/storage/v1{blob.path}?alt=media"
        if body.version:
            # Not by a condition: a versioned bucket still has the generation after it was replaced.
            url += f"&generation={body.version}"
        headers = {"Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "gzip"}  # as it is stored
        with self._client._http.get(url, headers=headers, stream=True, timeout=timeouts()) as answer:
            if answer.status_code == 416:
                return
            if answer.status_code >= 300:
                raise from_http_response(answer)  # type: ignore[no-untyped-call]
            before = body.length
            while piece := answer.raw.read(body.piece(end - start), decode_content=False):
                body.write(piece)
            if f"{body.length - before}" != answer.headers.get("Content-Length", f"{body.length - before}"):
                raise Again("a body that ended early")

    def _page(self, place: Place, token: str, most: int) -> tuple[list[tuple[str, Stat]], str]:
        fields = "items(name,size,generation,updated),nextPageToken"
        result = self._listed(place, token, page_size=most, fields=fields)
        page = next(result.pages, ())
        return [
            (blob.name, Stat(blob.size, str(blob.generation), blob.updated)) for blob in page
        ], result.next_page_token or ""

    def _folders(self, place: Place, token: str) -> tuple[list[str], str]:
        result = self._listed(place, token, delimiter="/", fields="prefixes,nextPageToken")
        next(result.pages, None)
        return list(result.prefixes), result.next_page_token or ""

    def _listed(self, place: Place, token: str, **options: Any) -> Any:
        return self._client.list_blobs(
            place.bucket, prefix=place.key or None, page_token=token or None, retry=None, timeout=timeouts(), **options
        )

    def _put(self, place: Place, data: bytes, *, replace: bool) -> None:
        condition = {} if replace else {"if_generation_match": 0}
        self._blob(place).upload_from_string(
            data, content_type=_TYPE, checksum="crc32c", retry=None, timeout=timeouts(), **condition
        )

    def _put_large(self, place: Place, path: Path) -> None:

        blob = self._blob(place, chunk_size=CHUNK)
        checksum = _checksum(path)

        def send() -> None:
            try:
                # The client retries single requests of the upload; a quarter of the time, so that the whole upload can
                # be retried as well. The checksum is sent first: sent last, a wrong object could exist for a moment.
                blob.upload_from_filename(
                    str(path),
                    content_type=_TYPE,
                    crc32c_checksum_value=checksum,
                    retry=DEFAULT_RETRY.with_timeout(patience() / 4).with_delay(*delays()),
                    timeout=timeouts(),
                )
            except GoogleAPICallError as error:
                if error.code not in {404, 410}:
                    raise
                raise Again("the upload has expired") from None

        self._require_bucket(place)
        self._ask(place, send)

    def _copy(self, source: Place, target: Place, stat: Stat) -> None:
        token: str | None = ""
        while token is not None:
            token = self._ask(source, functools.partial(self._rewrite, source, target, stat, token or None))

    def _rewrite(self, source: Place, target: Place, stat: Stat, token: str | None) -> str | None:
        further, _, _ = self._blob(target).rewrite(
            self._blob(source),
            token=token,
            if_source_generation_match=int(stat.version),
            retry=None,
            timeout=timeouts(),
        )
        return str(further) if further else None

    def _delete(self, place: Place) -> None:
        self._blob(place).delete(retry=None, timeout=timeouts())


def _checksum(path: Path) -> str:

    result = google_crc32c.Checksum()
    with path.open("rb") as file:
        while data := file.read(1 << 20):
            result.update(data)
    return base64.b64encode(result.digest()).decode()
