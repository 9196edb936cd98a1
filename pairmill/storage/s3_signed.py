"""Requests for the bytes of S3's objects: signed by botocore, and sent without what its client does for each.

A call of the client takes the time in which a megabyte arrives, and it computes the sha256 of what it uploads twice.
Where a bucket is, and how requests to it are signed, is the client's to find: its first request to each bucket tells.
"""

from __future__ import annotations

import base64
import os
import re
import threading
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from botocore import exceptions, parsers
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest, AWSResponse
from botocore.httpsession import URLLib3Session
from botocore.session import Session
from botocore.utils import get_environ_proxies

from pairmill.retry import Again
from pairmill.storage.remote import Place

CHECKSUM: Final = "x-amz-checksum-sha256"
_SIGNED: Final = re.compile(r"AWS4-HMAC-SHA256 Credential=.*/\d{8}/(?P<region>[^/]+)/s3/aws4_request")
_PARSER: Final = parsers.create_parser("rest-xml")


class _Auth(S3SigV4Auth):  # type: ignore[misc]
    def payload(self, request: Any) -> str:
        checksum = request.headers.get(CHECKSUM)
        return base64.b64decode(checksum).hex() if checksum else str(super().payload(request))


class _Route(NamedTuple):
    """What the URLs of a bucket's objects start with, the region that signatures name, and who we say we are."""

    start: str
    region: str
    agent: str


class SignedRequests:
    """Makes requests to the buckets that a client has reached. Threads may share one.

    Args:
        session: where the client's settings come from.
        client: of S3.
        credentials: those of the client.
        timeouts: seconds to wait for a connection and for the next byte.
        connections: that are kept.
    """

    def __init__(
        self, session: Session, client: Any, credentials: Any, timeouts: tuple[float, float], connections: int
    ) -> None:
        self._credentials = credentials
        self._last = threading.local()
        self._routes: dict[str, _Route] = {}
        proxies = get_environ_proxies(client.meta.endpoint_url)
        # As the client does.
        verify = session.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE", True)
        self._http = URLLib3Session(verify, proxies, timeouts, max_pool_connections=connections)
        client.meta.events.register("before-send.s3", self._note)

    def learn(self, place: Place) -> None:
        """Note how the client has just reached an object, unless it signed in another way than we do."""
        request = self._last.request
        start, quoted = request.url.partition("?")[0], quote(place.key, safe="/~")
        headers = {name: _text(value) for name, value in request.headers.items()}
        signed = _SIGNED.match(headers.get("Authorization", ""))
        if signed and start.endswith(quoted):
            self._routes[place.bucket] = _Route(start.removesuffix(quoted), signed["region"], headers["User-Agent"])

    def knows(self, bucket: str) -> bool:
        """Return whether :meth:`send` can reach a bucket."""
        return bucket in self._routes

    def send(
        self, method: str, place: Place, headers: Mapping[str, str], body: bytes | memoryview = b"", query: str = ""
    ) -> AWSResponse:
        """Send a request for an object and return the answer; the body of one to GET has not been read.

        Raises:
            Again: the bucket is elsewhere; the client has to find it anew.
            ClientError: any other answer than success, as the client raises it.
        """
        route = self._routes[place.bucket]
        url = f"{route.start}{quote(place.key, safe='/~')}{query and '?'}{query}"
        request = AWSRequest(method, url, {"User-Agent": route.agent, **headers}, body, stream_output=True)
        _Auth(self._credentials.get_frozen_credentials(), "s3", route.region).add_auth(request)
        answer = self._http.send(request.prepare())
        if answer.status_code in {301, 307}:
            self._routes.pop(place.bucket, None)
            raise Again(f"{answer.status_code}: the bucket is elsewhere")
        if answer.status_code >= 300:
            got = {"status_code": answer.status_code, "headers": answer.headers, "body": answer.content}
            raise exceptions.ClientError(_PARSER.parse(got, None), method)
        if method != "GET":
            _ = answer.content  # a connection is used again once its answer has been read
        return answer

    def _note(self, request: Any, **_: object) -> None:
        self._last.request = request


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
