"""The API server of Kubeflow Pipelines: how it is reached, and what its refusals mean.

Everything goes through ``kfp.Client`` over a transport of ours: docs/decisions/0019-kfp-client.md says why.
"""

import contextlib
import json
import logging
import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import urllib3

from pairmill.engine.options import option
from pairmill.errors import InputError, PairmillError, StorageError, UsageError
from pairmill.fields import Checked

HOST_VARIABLE, UI_VARIABLE, TOKEN_VARIABLE = "KF_PIPELINES_ENDPOINT", "KF_PIPELINES_UI_ENDPOINT", "KF_PIPELINES_TOKEN"
_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_POD_TOKEN = "/var/run/secrets/kubeflow/pipelines/token"  # noqa: S105 - its place
_TIMEOUT = (10, 60)  # seconds to connect, and between two bytes
_TRIES = 5
_LOG_BYTES, _LOG_SECONDS = 1 << 16, 60.0
_BUSY = frozenset({429, 502, 503, 504})
_TWICE = str.maketrans({"%": "%25", "+": "%2B"})
_CHECK = "check host, network and certificates, then run the same command"
_LOGIN = f"check the token (token_file=, {TOKEN_VARIABLE}), its audience, and what it may do in the namespace"


class Unanswered(StorageError):
    """No answer, or one that a later try may change. Exit code 4."""


class Refused(StorageError):
    """The token is unknown, or not allowed to do this. Exit code 4."""


class NoLog(InputError):
    """The server has no log of a pod, which never began or was ended before it could leave one."""


class Exists(PairmillError):
    """Somebody else made it meanwhile."""


@dataclass(kw_only=True)
class ServerConfig(Checked):
    """How the server is reached."""

    host: str = option("", help=f"address of Kubeflow Pipelines, as https://…; empty = {HOST_VARIABLE}")
    namespace: str = option("", help="profile's namespace, where Kubeflow has several users; empty = that of the pod")
    token_file: str = option("", help=f"file with a bearer token; empty = {TOKEN_VARIABLE}, or the pod's projected one")
    ca_file: str = option("", help="certificate authority of the server, as a file; empty = the public ones")
    poll: float = option(
        5.0, help="seconds between two looks at a run; every other wait is a multiple of it", above=0, at_most=600
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.host = (self.host or os.environ.get(HOST_VARIABLE, "")).rstrip("/")
        if not self.host:
            raise UsageError("required", where="host", expected="https://…", hint=f"give host=, or set {HOST_VARIABLE}")
        if "://" not in self.host:
            self.host = f"https://{self.host}"
        if "@" in urlsplit(self.host).netloc:
            raise UsageError("contains a login", where="host", expected="https://<name>", hint="give token_file=")


class Server:
    """A server, and ``kfp.Client`` whose every request is ours: its time limit, its retries, and what a refusal means.

    Attributes:
        client: a ``kfp.Client``. Its methods raise ``Unanswered`` (after several tries of what changes nothing),
            ``Refused`` (401, 403), ``InputError`` (404), ``Exists`` (409), and ``UsageError`` for any other refusal.
        namespace: to name in requests; None if the server has a single user.
        poll: seconds between two looks at a run.
    """

    def __init__(self, config: ServerConfig) -> None:
        """Connect, and ask the server whether it has several users.

        Raises:
            UsageError: the token or the certificates cannot be read, or the namespace is missing.
            Unanswered: there is no answer, or one of another program.
            Refused: the token is not accepted.
        """
        from kfp.client import client as sdk

        self.host, self.poll, self._refusal = config.host, config.poll, sdk.kfp_server_api.ApiException
        self._token = _token_source(config.token_file)
        if config.ca_file and not Path(config.ca_file).is_file():
            raise UsageError("does not exist", where="ca_file", got=config.ca_file)
        # The client logs every failed try in its own words; ours are logged once.
        logging.getLogger("urllib3").setLevel(logging.ERROR)
        if self._token is not None:
            self._token()
        pod = _POD_NAMESPACE.read_text(encoding="utf-8").strip() if _POD_NAMESPACE.is_file() else ""
        namespace = config.namespace or pod
        with warnings.catch_warnings(action="ignore"):
            # Without a namespace it would ask for one before our transport is in it, and write it at home.
            self.client = sdk.Client(
                config.host,
                namespace=namespace or "-",
                ssl_ca_cert=config.ca_file,
                credentials=self if self._token is not None else None,
            )
        self._api = self.client._healthz_api.api_client  # all services share it
        self._api.configuration.retries = urllib3.Retry(
            total=_TRIES - 1,
            # A redirect leads to a login page, whose HTML would be taken for an empty answer.
            redirect=False,
            status_forcelist=_BUSY,
            allowed_methods=["GET"],
            backoff_factor=config.poll / 10,
            backoff_jitter=config.poll / 10,
            backoff_max=config.poll * 6,
            raise_on_status=False,
        )
        self._api.rest_client = type(self._api.rest_client)(self._api.configuration)
        self._send, self._api.call_api = self._api.call_api, self._call
        several = self.client.get_kfp_healthz().multi_user
        if several and not namespace:
            expected, hint = "the namespace of your profile", f"{self.host} has several users"
            raise UsageError("required", where="namespace", expected=expected, hint=hint)
        self.namespace = namespace if several else None
        self.client._context_setting["namespace"] = self.namespace  # its setter writes at home

    def refresh_api_key_hook(self, settings: Any) -> None:
        """Put the token into a request: the kubelet renews a projected one before the old one expires."""
        settings.api_key["authorization"] = self._token() if self._token is not None else ""

    def link(self, run: str) -> str:
        """Return the run's page in the interface."""
        return f"{os.environ.get(UI_VARIABLE, self.host).rstrip('/')}/#/runs/details/{run}"

    def _call(self, path: str, method: str, places: Any = None, query: Any = None, *rest: Any, **named: Any) -> Any:
        """Send a request of the client; after a 401 read the token again, and send it once more."""
        # The server decodes a filter once more than HTTP does.
        query = [(key, value.translate(_TWICE) if key == "filter" else value) for key, value in query or ()]
        named["_request_timeout"] = _TIMEOUT
        send = partial(self._send, path, method, places, query, *rest, **named)
        with self._translated():
            try:
                answer = send()
            except self._refusal as error:
                if error.status != 401:
                    raise
                answer = send()
        if named.get("_preload_content", True):
            kind = self._api.last_response.getheader("content-type", "")
            if "json" not in kind:
                got = f"an answer of type {kind}"
                raise Unanswered("not a Kubeflow Pipelines server", where=self.host, got=got, hint=_CHECK)
        return answer

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Raise our own errors in place of the client's."""
        try:
            yield
        except self._refusal as error:
            raise self._error(error.status, error.body) from None
        except (urllib3.exceptions.HTTPError, UnicodeDecodeError) as error:
            reason = self._safe(str(getattr(error, "reason", None) or error))
            raise Unanswered("does not answer", where=self.host, got=reason, hint=_CHECK) from None

    def log_tail(self, run: str, node: str) -> str:
        """Return the end of the log of a workflow node, whose pod may be gone. Only v1alpha1 of the API has it.

        The server decodes each line that is a JSON object, and gives its key ``log`` or an empty line.

        Raises:
            NoLog: there is none, or it is empty.
            PairmillError: the server does not give it.
        """
        end, tail = time.monotonic() + _LOG_SECONDS, b""
        answer = self._call(
            "/apis/v1alpha1/runs/{run}/nodes/{node}/log",
            "GET",
            {"run": run, "node": node},
            auth_settings=["Bearer"],
            _preload_content=False,
            _return_http_data_only=True,
        )
        with self._translated(), answer:
            for piece in answer.stream(_LOG_BYTES):
                tail = (tail + piece)[-_LOG_BYTES:]
                if time.monotonic() > end:
                    break
        text = self._safe(tail.decode("utf-8", "replace"))
        # If there is no log the server answers 200, with a message in its place or, of a container that was killed for
        # its memory, with nothing.
        refused = _message(text, "error_message")
        if refused or not text.strip():
            raise NoLog("has no log", where=self.host, got=refused or "an empty answer")
        return text

    def _error(self, status: int, body: Any) -> PairmillError:
        got, message = f"status {status}", self._safe(_message(body, "message", "error_message", "error"))
        if status in _BUSY or status >= 500 or not status:
            return Unanswered(message or "does not answer", where=self.host, got=got, hint=_CHECK)
        if 300 <= status < 400:
            return Refused("redirects to a login", where=self.host, got=got, hint=_LOGIN)
        if status in {401, 403}:
            return Refused(message or "access denied", where=self.host, got=got, hint=_LOGIN)
        if status == 404:
            return InputError(message or "not found", where=self.host, got=got, hint="check the id, host and namespace")
        if status == 409:
            return Exists(message or "already exists", where=self.host, got=got)
        return UsageError(message or "request refused", where=self.host, got=got, hint="check the options")

    def _safe(self, text: str) -> str:
        """Return the text without our token, which a proxy may send back."""
        try:
            token = self._token() if self._token is not None else ""
        except UsageError:
            token = ""
        return text.replace(token, "…") if token else text


def _token_source(file: str) -> Callable[[], str] | None:
    """Return a function that reads the current token; None if there is none."""
    if not file and os.environ.get(TOKEN_VARIABLE):
        return lambda: os.environ[TOKEN_VARIABLE]
    if not file:
        file = os.environ.get("KF_PIPELINES_SA_TOKEN_PATH") or _POD_TOKEN
        if not Path(file).is_file():
            return None

    def read() -> str:
        try:
            token = Path(file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError("cannot be read", where="token_file", got=file, hint=type(error).__name__) from None
        if not token:
            raise UsageError("is empty", where="token_file", got=file, expected="a bearer token")
        return token

    return read


def _message(body: Any, *keys: str) -> str:
    """Return the server's own words: the first of these keys, if the answer is a JSON object."""
    try:
        reply = json.loads(str(body or ""))
    except ValueError:
        return ""
    result = [reply.get(key) for key in keys] if isinstance(reply, dict) else []
    return str(next(filter(None, result), ""))[:500]
