"""``s3://`` and ``minio://`` by botocore.

Endpoint, region and credentials come from the usual places of AWS tools: ``AWS_ENDPOINT_URL_S3``, ``AWS_REGION``,
``AWS_ACCESS_KEY_ID``, ``AWS_WEB_IDENTITY_TOKEN_FILE`` (IRSA), ``~/.aws``, the instance.
``minio://`` is Kubeflow's scheme for its own store. In a pod the endpoint has a default, and the keys may be given as
``MINIO_ACCESS_KEY`` and ``MINIO_SECRET_KEY``.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import urlencode, urlsplit

import botocore.session
import urllib3
from botocore import exceptions
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.parsers import ResponseParserError
from botocore.response import StreamingBody
from botocore.utils import parse_timestamp

from pairmill.errors import StorageError, UsageError
from pairmill.retry import Again, raced, timeouts
from pairmill.storage.base import Begun, Digested, Entry, Span, T, each
from pairmill.storage.remote import (
    PART,
    PARTS_AT_ONCE,
    READERS,
    Absent,
    Body,
    Place,
    RemoteStore,
    Stat,
    no_credentials,
    refusal,
)
from pairmill.storage.s3_signed import CHECKSUM, SignedRequests

KUBEFLOWS = "http://seaweedfs.kubeflow:9000"
"""Kubeflow's own store, the default of its launcher 2.17. Source: its backend/src/v2/objectstore/config.go."""
PARTS = 10_000
"""The limit of parts per object. Source: docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html."""
COPIED = 5 << 30
"""The limit of bytes that one request copies. Source: the same."""
SMALLEST = 5 << 20
"""Bytes of each part but the last at least. Source: the same."""
COPIED_PART = 512 << 20
"""Bytes of each part of a larger copy."""
_CONNECTIONS = 64
_Options = dict[str, Any]
_Send = Callable[[_Options, int, T, Event], _Options]
_Part = Span | Sequence[bytes | Span]
_TRIED = 3
# Codes of status 400 that blame the connection, not the request.
_PASSING = {"BadDigest", "IncompleteBody", "RequestTimeout", "XAmzContentSHA256Mismatch"}
# Codes of status 409 that mean a concurrent request; the other codes of 409 are permanent.
# Source: docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html; the last one is Ceph's.
_PASSING |= {"OperationAborted", "ConditionalRequestConflict", "ConcurrentModification"}
_EXPIRED = {"ExpiredToken", "InvalidToken", "TokenRefreshRequired"}
_CREDENTIALS = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the pod's service account a role"


class S3Store(RemoteStore):
    """Buckets of one S3 endpoint.

    Objects of more than PART bytes are multipart uploads. A killed upload leaves parts that no listing shows; a
    lifecycle rule of the bucket (AbortIncompleteMultipartUpload) removes them.
    """

    loggers = ("botocore", "urllib3")

    def _connected(self) -> Any:

        connect, read = timeouts()
        config = Config(
            connect_timeout=connect,
            read_timeout=read,
            max_pool_connections=_CONNECTIONS,
            retries={"total_max_attempts": 1},
            user_agent_extra="pairmill",
        )
        given = _of_kubeflow(os.environ) if self._kind == "minio" else {}
        session = botocore.session.get_session()
        session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_time)
        client = session.create_client("s3", config=config, **given)
        if self._kind == "minio" and str(urlsplit(client.meta.endpoint_url).hostname).endswith(".amazonaws.com"):
            raise UsageError(
                "minio:// needs an endpoint", where="AWS_ENDPOINT_URL_S3", expected="http(s)://<host>:<port>"
            )
        keys = (given.get("aws_access_key_id"), given.get("aws_secret_access_key"))
        credentials = Credentials(*keys) if all(keys) else session.get_credentials()
        self._signed = SignedRequests(session, client, credentials, (connect, read), _CONNECTIONS)
        return client

    @contextmanager
    def _failures(self, place: Place) -> Iterator[None]:

        try:
            yield
        except exceptions.ClientError as error:
            answer = error.response
            code, text = (str(answer.get("Error", {}).get(part, "")) for part in ("Code", "Message"))
            told = answer.get("ResponseMetadata", {})
            status, headers = int(told.get("HTTPStatusCode", 0)), told.get("HTTPHeaders", {})
            detail = ": ".join(part for part in (code, text) if part and part != str(status))
            if code in _PASSING:
                raise Again(f"{status} {detail}") from None
            if code in _EXPIRED:
                raise no_credentials(place, detail, _CREDENTIALS) from None
            raise refusal(place, status, detail, headers) from None
        except (
            exceptions.NoCredentialsError,
            exceptions.PartialCredentialsError,
            exceptions.CredentialRetrievalError,
            exceptions.TokenRetrievalError,
            exceptions.ProfileNotFound,
        ) as error:
            raise no_credentials(place, type(error).__name__, _CREDENTIALS) from None
        except (
            exceptions.ConnectionError,
            exceptions.HTTPClientError,
            exceptions.IncompleteReadError,
            exceptions.ResponseStreamingError,
            ResponseParserError,
            urllib3.exceptions.HTTPError,
        ) as error:
            # Their messages contain URLs with secrets.
            endpoint = urlsplit(self._client.meta.endpoint_url)
            raise Again(f"{type(error).__name__} at {endpoint.hostname}:{endpoint.port or endpoint.scheme}") from None
        except exceptions.ParamValidationError as error:
            raise UsageError("not a valid URI of an object", where=place.uri, got=str(error)) from None
        except exceptions.BotoCoreError as error:
            raise StorageError("storage failed", where=place.uri, got=type(error).__name__) from None

    @functools.cached_property
    def _spare(self) -> deque[bytearray]:
        """Memory of parts that were sent."""
        return deque(maxlen=2 * PARTS_AT_ONCE)

    def _reached(self, place: Place) -> bool:
        """Return whether the client has reached a bucket before, so that requests need it no more."""
        return bool(self._client) and self._signed.knows(place.bucket)

    def _stat(self, place: Place) -> Stat:
        if self._reached(place):
            told = self._signed.send("HEAD", place, {}).headers
            written = parsedate_to_datetime(told["Last-Modified"]) if "Last-Modified" in told else None
            return Stat(int(told["Content-Length"]), told["ETag"], written)
        answer = self._client.head_object(Bucket=place.bucket, Key=place.key)
        self._signed.learn(place)
        return Stat(answer["ContentLength"], answer["ETag"], answer.get("LastModified"))

    def _get(self, place: Place, start: int, end: int, body: Body) -> None:
        bounds = f"bytes={start}-{end - 1}"
        try:
            if self._reached(place):
                condition = {"If-Match": body.version} if body.version else {}
                answer = self._signed.send("GET", place, {"Range": bounds, **condition})
                version, stream = (
                    answer.headers["ETag"],
                    StreamingBody(answer.raw, answer.headers.get("Content-Length")),
                )
            else:
                condition = {"IfMatch": body.version} if body.version else {}
                told = self._client.get_object(Bucket=place.bucket, Key=place.key, Range=bounds, **condition)
                self._signed.learn(place)
                version, stream = told["ETag"], told["Body"]
        except exceptions.ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] == 416:
                return
            raise
        body.version = version
        # `with stream` would give the urllib3 response below, which takes a cut for the end.
        with closing(stream):
            while piece := stream.read(body.piece(end - start)):
                body.write(piece)

    def _page(self, place: Place, token: str, most: int) -> tuple[list[tuple[str, Stat]], str]:
        further = {"ContinuationToken": token} if token else {}
        answer = self._client.list_objects_v2(Bucket=place.bucket, Prefix=place.key, MaxKeys=most, **further)
        result = [
            (item["Key"], Stat(item["Size"], item.get("ETag", ""), item.get("LastModified")))
            for item in answer.get("Contents", [])
        ]
        return result, answer.get("NextContinuationToken", "")

    def _folders(self, place: Place, token: str) -> tuple[list[str], str]:
        further = {"ContinuationToken": token} if token else {}
        answer = self._client.list_objects_v2(Bucket=place.bucket, Prefix=place.key, Delimiter="/", **further)
        return [item["Prefix"] for item in answer.get("CommonPrefixes", [])], answer.get("NextContinuationToken", "")

    def _put(self, place: Place, data: bytes, *, replace: bool) -> None:
        checksum = _checksum(data)
        if self._reached(place):
            self._signed.send("PUT", place, {CHECKSUM: checksum, **({} if replace else {"If-None-Match": "*"})}, data)
            return
        condition = {} if replace else {"IfNoneMatch": "*"}
        self._client.put_object(Bucket=place.bucket, Key=place.key, Body=data, ChecksumSHA256=checksum, **condition)
        self._signed.learn(place)

    def _put_large(self, place: Place, path: Path) -> None:
        size = path.stat().st_size
        width = max(PART, -(-size // PARTS))

        def send(upload: _Options, number: int, start: int, stop: Event) -> _Options:
            # New memory for each part would take as long as reading it does.
            buffer = bytearray()
            with suppress(IndexError):
                buffer = self._spare.pop()
            buffer = buffer if len(buffer) == width else bytearray(width)
            with path.open("rb") as file:
                file.seek(start)
                data = memoryview(buffer)[: file.readinto(buffer)]
            checksum = _checksum(data)
            etag = self._put_part(place, upload, number, data, checksum, stop)
            if width == PART:
                self._spare.append(buffer)
            return {"PartNumber": number, "ETag": etag, "ChecksumSHA256": checksum}

        self._multipart(place, range(0, size, width), send, {"ChecksumAlgorithm": "SHA256"})

    def _put_part(
        self, place: Place, upload: _Options, number: int, data: bytes | memoryview, checksum: str, stop: Event
    ) -> str:
        """Upload a part, with a checksum if all parts have them, and return its ETag."""
        query = urlencode({"partNumber": number, "uploadId": upload["UploadId"]})

        def put() -> str:
            if self._reached(place):
                headers = {CHECKSUM: checksum} if checksum else {}
                return str(self._signed.send("PUT", place, headers, data, query).headers["ETag"])
            given = {"ChecksumSHA256": checksum} if checksum else {}
            return str(self._client.upload_part(**upload, PartNumber=number, Body=bytes(data), **given)["ETag"])

        return self._ask(place, put, stop=stop)

    def _copy(self, source: Place, target: Place, stat: Stat) -> None:
        origin = {"CopySource": {"Bucket": source.bucket, "Key": source.key}, "CopySourceIfMatch": stat.version}
        if stat.size <= COPIED:
            self._ask(source, lambda: self._client.copy_object(Bucket=target.bucket, Key=target.key, **origin))
            return
        width = max(COPIED_PART, -(-stat.size // PARTS))

        def send(upload: _Options, number: int, start: int, stop: Event) -> _Options:
            span = Span(source.uri, start, min(start + width, stat.size))
            return {"PartNumber": number, "ETag": self._copy_part(upload, number, span, stat, stop)}

        self._multipart(target, range(0, stat.size, width), send, {})

    def _copy_part(self, upload: _Options, number: int, span: Span, stat: Stat, stop: Event) -> str:
        """Make a part of what another object has, and return its ETag."""
        source = Place.from_uri(span.uri)
        given = {
            "CopySource": {"Bucket": source.bucket, "Key": source.key},
            "CopySourceIfMatch": stat.version,
            "CopySourceRange": f"bytes={span.start}-{span.stop - 1}",
        }
        copy = functools.partial(self._client.upload_part_copy, **upload, **given, PartNumber=number)
        return str(self._ask(source, copy, stop=stop)["CopyPartResult"]["ETag"])

    def join(
        self, uri: str, pieces: Sequence[bytes | Span], *, final: bool = False, begun: Begun | None = None
    ) -> Digested:
        place, parts = Place.from_uri(uri), parts_of(pieces)
        copied = [part for part in parts if isinstance(part, Span)]
        if not copied or len(parts) >= PARTS or max(part.stop - part.start for part in copied) > COPIED:
            return super().join(uri, pieces, final=final)
        uris = [*dict.fromkeys(part.uri for part in copied)]
        stats = dict(zip(uris, each(lambda uri, _: self._head(uri), uris, READERS), strict=True))

        digested: list[Digested] = []

        def send(upload: _Options, number: int, part: _Part, stop: Event) -> _Options:
            if not part:
                # Before the object is complete: it exists only if its pieces could be read.
                known = {uri: stat.stamp for uri, stat in stats.items()}
                digested[:] = [self._digest_pieces(pieces, len, stop, known)]
                return {}
            number -= 1
            if isinstance(part, Span):
                return {"PartNumber": number, "ETag": self._copy_part(upload, number, part, stats[part.uri], stop)}

            def read(piece: bytes | Span, _: Event) -> bytes:
                if isinstance(piece, bytes):
                    return piece
                return self.read_range(piece.uri, piece.start, piece.stop - piece.start)

            held = each(read, part, PARTS_AT_ONCE)
            etag = self._put_part(place, upload, number, b"".join(held), "", stop)
            return {"PartNumber": number, "ETag": etag}

        self._multipart(place, [[], *parts], send, {})
        return digested[0]

    def _multipart(self, place: Place, parts: Sequence[T], send: _Send[T], options: _Options) -> None:
        """Write an object in parts; ``send`` uploads one, several run at once. A failure removes the parts."""
        # An upload that is absent at its completion was completed by a try whose answer was lost, or removed by a rule
        # of the bucket. Writing once more is right in both cases.
        raced(lambda: self._upload(place, parts, send, options), Absent, _TRIED)

    def _upload(self, place: Place, parts: Sequence[T], send: _Send[T], options: _Options) -> None:
        client, target = self._client, {"Bucket": place.bucket, "Key": place.key}
        begun = self._ask(place, lambda: client.create_multipart_upload(**target, **options))
        self._signed.learn(place)
        upload = {**target, "UploadId": begun["UploadId"]}
        try:
            made = each(lambda part, stop: send(upload, part[0], part[1], stop), enumerate(parts, 1), PARTS_AT_ONCE)
            given = {"Parts": [part for part in made if part]}
            self._ask(place, lambda: client.complete_multipart_upload(**upload, MultipartUpload=given))
        except BaseException:
            with suppress(Exception):
                client.abort_multipart_upload(**upload)
            raise

    def leftovers(self, prefix: str) -> Sequence[Entry]:
        place = Place.below(prefix)
        result: list[Entry] = []
        further: _Options = {}
        while True:
            asked = {"Bucket": place.bucket, "Prefix": place.key, **further}
            answer = self._ask(place, functools.partial(self._client.list_multipart_uploads, **asked))
            result += [
                Entry(item["Key"].removeprefix(place.key), 0, item["UploadId"], item["Initiated"].timestamp())
                for item in answer.get("Uploads", [])
            ]
            if not answer.get("IsTruncated"):
                return result
            further = {"KeyMarker": answer["NextKeyMarker"], "UploadIdMarker": answer.get("NextUploadIdMarker", "")}

    def drop_leftovers(self, prefix: str, leftovers: Iterable[Entry]) -> None:
        place = Place.below(prefix)
        for entry in leftovers:
            upload = {"Bucket": place.bucket, "Key": place.key + entry.path, "UploadId": entry.stamp}
            with suppress(Absent):
                self._ask(place, functools.partial(self._client.abort_multipart_upload, **upload))

    def _delete(self, place: Place) -> None:
        self._client.delete_object(Bucket=place.bucket, Key=place.key)


def _of_kubeflow(environment: Mapping[str, str]) -> dict[str, str]:
    """Endpoint and keys of Kubeflow's own store, where the environment does not give others."""
    result = {}
    if "KUBERNETES_SERVICE_HOST" in environment and not {"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"} & set(environment):
        result["endpoint_url"] = KUBEFLOWS
    if "MINIO_ACCESS_KEY" in environment and "AWS_ACCESS_KEY_ID" not in environment:
        result["aws_access_key_id"] = environment["MINIO_ACCESS_KEY"]
        result["aws_secret_access_key"] = environment.get("MINIO_SECRET_KEY", "")
    return result


def parts_of(pieces: Sequence[bytes | Span]) -> Sequence[_Part]:
    """Return the parts of an upload: spans that the store copies, and between them what has to be sent.

    Only the last part may have less than SMALLEST bytes, so what is shorter takes of the span behind it.
    """
    result: list[_Part] = []
    held: list[bytes | Span] = []
    size = 0
    for piece in pieces:
        if isinstance(piece, Span):
            cut = piece.start + (max(0, SMALLEST - size) if held else 0)
            if piece.stop - cut >= SMALLEST:
                if held:
                    result.append([*held, *([Span(piece.uri, piece.start, cut)] if cut > piece.start else [])])
                result.append(Span(piece.uri, cut, piece.stop))
                held, size = [], 0
                continue
        held.append(piece)
        size += len(piece) if isinstance(piece, bytes) else piece.stop - piece.start
        if size >= PART:
            result.append(held)
            held, size = [], 0
    return [*result, held] if held else result


def _checksum(data: bytes | memoryview) -> str:
    return base64.b64encode(hashlib.sha256(data).digest()).decode()


def _time(text: Any) -> datetime:
    """Read the time of an object; of a listing's ISO form botocore takes longer than for all else that it has."""
    try:
        return datetime.fromisoformat(text)
    except (ValueError, TypeError):
        slowly: datetime = parse_timestamp(text)
        return slowly
