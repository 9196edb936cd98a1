"""Posts a JSON value to a service that a result does not need: one attempt, a few seconds, and errors for a warning."""

import http.client
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, Final

from pairmill.errors import StorageError
from pairmill.redact import scrubbed

_SECONDS: Final = 10
"""A service that does not answer must not keep a task waiting."""
_SHOWN: Final = 300
"""Characters of a refusal."""


class _Refused(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: that of a login page would take a token to another server, and turn a POST into a GET."""

    def redirect_request(self, *_: Any) -> None:
        return None


def post(url: str, value: Mapping[str, Any], headers: Mapping[str, str], ca: str = "") -> None:
    """Post a value as JSON.

    Args:
        url: http or https.
        value: what is posted.
        headers: beside the content's type.
        ca: file of the certificates that the server's follows from; empty = those of the system.

    Raises:
        StorageError: no answer, or one that is not a success; says which, without headers.
    """
    try:
        context = ssl.create_default_context(cafile=ca or None)
        opener = urllib.request.build_opener(_Refused, urllib.request.HTTPSHandler(context=context))
        request = urllib.request.Request(  # noqa: S310 - an address that the cluster gives the pod
            url, json.dumps(value).encode(), {"Content-Type": "application/json", **headers}, method="POST"
        )
        with opener.open(request, timeout=_SECONDS) as answer:
            answer.read()
    except urllib.error.HTTPError as error:
        text = error.read()[:_SHOWN].decode("utf-8", "replace")
        raise StorageError("refused", where=scrubbed(url), got=f"{error.code} {text}") from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise StorageError("no answer", where=scrubbed(url), got=f"{type(error).__name__}: {error}") from error
