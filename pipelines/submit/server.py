"""The API server of Kubeflow Pipelines: how it is reached, and what its refusals mean.

The generated client is asked directly. ``kfp.Client`` around it takes namespace and cookies from a file in HOME and may
write it, prints links on stdout, waits for an answer for ever, and its wait for a run never ends at CANCELED.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pairmill.engine.stage import option
from pairmill.errors import InputError, PairmillError, StorageError, UsageError

T = TypeVar("T")

HOST_VARIABLE, UI_VARIABLE, TOKEN_VARIABLE = "KF_PIPELINES_ENDPOINT", "KF_PIPELINES_UI_ENDPOINT", "KF_PIPELINES_TOKEN"
_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_TIMEOUT = (10, 60)  # seconds to connect, and between two bytes
_TRIES = 5
_LOG_BYTES, _LOG_SECONDS = 1 << 16, 60.0
_BUSY = frozenset({429, 502, 503, 504})


class Unanswered(StorageError):
    """No answer, or one that may be another one later. Exit code 4."""


class Refused(StorageError):
    """Who asks is not known, or may not. Exit code 4."""


class NoLog(InputError):
    """The server has no log of a pod: it was ended before it could leave one, or never began."""


class Exists(PairmillError):
    """Somebody else made it meanwhile."""


@dataclass(kw_only=True)
class ServerConfig:
    """How the server is reached."""

    host: str = option("", help=f"address of Kubeflow Pipelines, as https://…; empty = {HOST_VARIABLE}")
    namespace: str = option("", help="profile's namespace, where Kubeflow has several users; empty = that of the pod")
    token_file: str = option("", help=f"file with a bearer token; empty = {TOKEN_VARIABLE}, or the pod's projected one")
    ca_file: str = option("", help="certificates of the authority that the server's is from; empty = the public ones")
    poll: float = option(5.0, help="seconds between two looks at a run; every other wait is a multiple of it")

    def __post_init__(self) -> None:
        self.host = (self.host or os.environ.get(HOST_VARIABLE, "")).rstrip("/")
        if not self.host:
            raise UsageError("is not given", where="host", expected="https://…", hint=f"host=, or {HOST_VARIABLE}")
        if "://" not in self.host:
            self.host = f"https://{self.host}"
        if "@" in urlsplit(self.host).netloc:
            raise UsageError("holds a login", where="host", expected="https://<name>", hint="token_file= takes a token")
        if not 0 < self.poll <= 600:
            raise UsageError("is out of range", where="poll", got=f"{self.poll:g}", expected="more than 0, at most 600")


class Server:
    """A server, its API as the generated client has it, and whom it takes us for.

    Attributes:
        namespace: to name in requests; empty where the server knows none.
        poll: seconds between two looks at a run.
    """

    def __init__(self, config: ServerConfig) -> None:
        """Look whether the server is one.

        Raises:
            UsageError: the token or the certificates cannot be read, or the namespace is missing.
            Unanswered: there is no answer, or one of another program.
            Refused: the token is not accepted.
        """
        import kfp_server_api as kfp  # type: ignore[import-untyped]
        import urllib3

        self.models, self.host, self.poll = kfp, config.host, config.poll
        self._token = _token_source(config.token_file)
        settings = kfp.Configuration(host=config.host)
        # The client says every try that failed in lines of its own; ours are said once.
        logging.getLogger("urllib3").setLevel(logging.ERROR)
        if config.ca_file:
            if not Path(config.ca_file).is_file():
                raise UsageError("does not exist", where="ca_file", got=config.ca_file)
            settings.ssl_ca_cert = config.ca_file
        # A redirect leads to a login page: followed, its HTML would be taken for an empty answer.
        settings.retries = urllib3.Retry(
            total=_TRIES - 1,
            redirect=False,
            status_forcelist=_BUSY,
            allowed_methods=["GET"],
            backoff_factor=config.poll / 10,
            backoff_jitter=config.poll / 10,
            backoff_max=config.poll * 6,
            raise_on_status=False,
        )
        if self._token is not None:
            self._token()
            settings.api_key = {"authorization": ""}
            settings.api_key_prefix = {"authorization": "Bearer"}
            settings.refresh_api_key_hook = self._authorize
        self._client = kfp.ApiClient(settings)
        self.runs = kfp.RunServiceApi(self._client)
        self.recurring = kfp.RecurringRunServiceApi(self._client)
        self.experiments = kfp.ExperimentServiceApi(self._client)
        self.pipelines = kfp.PipelineServiceApi(self._client)
        self.uploads = kfp.PipelineUploadServiceApi(self._client)
        health = self.call(kfp.HealthzServiceApi(self._client).healthz_service_get_healthz)
        self.namespace = self._namespace(config.namespace) if health.multi_user else ""

    def _namespace(self, given: str) -> str:
        if not given and _POD_NAMESPACE.is_file():
            given = _POD_NAMESPACE.read_text(encoding="utf-8").strip()
        if not given:
            raise UsageError(
                "is not given",
                where="namespace",
                expected="the namespace of your profile",
                hint=f"{self.host} has several users",
            )
        return given

    def _authorize(self, settings: Any) -> None:
        # Asked before every request: the kubelet writes a projected token anew before the old one expires.
        settings.api_key["authorization"] = self._token() if self._token is not None else ""

    def link(self, run: str) -> str:
        """Where a person sees the run."""
        return f"{os.environ.get(UI_VARIABLE, self.host).rstrip('/')}/#/runs/details/{run}"

    def call(self, method: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """What a method of the generated client answers. A refused token is read once more and tried again.

        Raises:
            Unanswered: no answer after several tries.
            Refused: 401 or 403.
            InputError: 404.
            Exists: 409.
            UsageError: refused as it was asked.
        """
        try:
            return self._ask(method, *arguments, **named)
        except Refused as error:
            if self._token is None or error.got != "status 401":
                raise
            return self._ask(method, *arguments, **named)

    def _ask(self, method: Callable[..., T], *arguments: Any, **named: Any) -> T:
        import urllib3

        try:
            answer = method(*arguments, **named, _request_timeout=_TIMEOUT)
        except self.models.ApiException as error:
            raise self._error(error.status, error.body) from None
        except urllib3.exceptions.HTTPError as error:
            reason = getattr(error, "reason", None) or error
            raise Unanswered("does not answer", where=self.host, got=self._safe(str(reason)), hint=_CHECK) from None
        except UnicodeDecodeError:
            raise Unanswered("answers no text", where=self.host, hint=_CHECK) from None
        kind = self._client.last_response.getheader("content-type", "")
        if "json" not in kind:
            raise Unanswered("is no Kubeflow Pipelines", where=self.host, got=f"an answer of type {kind}", hint=_CHECK)
        return answer

    def log_tail(self, run: str, node: str) -> str:
        """The end of the log of a node of the workflow, which may be gone: the API has it in v1alpha1 only.

        The server decodes each line that is a JSON object, and gives its key ``log`` or an empty line.

        Raises:
            PairmillError: it cannot be had.
        """
        import urllib3

        end = time.monotonic() + _LOG_SECONDS
        tail = b""
        try:
            answer = self._client.call_api(
                "/apis/v1alpha1/runs/{run}/nodes/{node}/log",
                "GET",
                path_params={"run": run, "node": node},
                auth_settings=["Bearer"],
                _preload_content=False,
                _request_timeout=_TIMEOUT,
                _return_http_data_only=True,
            )
            with answer:
                for piece in answer.stream(_LOG_BYTES):
                    tail = (tail + piece)[-_LOG_BYTES:]
                    if time.monotonic() > end:
                        break
        except (self.models.ApiException, urllib3.exceptions.HTTPError, UnicodeDecodeError) as error:
            raise self._error(getattr(error, "status", 0), getattr(error, "body", None)) from None
        text = self._safe(tail.decode("utf-8", "replace"))
        # Where there is no log the server answers 200, and says so in place of it.
        if refused := _message(text, "error_message"):
            raise NoLog("has no log", where=self.host, got=refused)
        return text

    def _error(self, status: int, body: Any) -> PairmillError:
        got, said = f"status {status}", self._safe(_message(body))
        if status in _BUSY or status >= 500 or not status:
            return Unanswered(said or "does not answer", where=self.host, got=got, hint=_CHECK)
        if status in {301, 302, 303, 307, 308}:
            return Refused("sends us to a login", where=self.host, got=got, hint=_LOGIN)
        if status in {401, 403}:
            return Refused(said or "does not let us", where=self.host, got=got, hint=_LOGIN)
        if status == 404:
            return InputError(said or "is not there", where=self.host, got=got, hint="check the id, host and namespace")
        if status == 409:
            return Exists(said or "exists already", where=self.host, got=got)
        return UsageError(said or "is refused", where=self.host, got=got, hint="check the options")

    def _safe(self, text: str) -> str:
        """The text without our token, should a proxy send back what it was sent."""
        try:
            token = self._token() if self._token is not None else ""
        except UsageError:
            token = ""
        return text.replace(token, "…") if token else text


_CHECK = "check host, network and certificates, then run the same command"
_LOGIN = f"check the token (token_file=, {TOKEN_VARIABLE}), its audience, and what it may do in the namespace"


def _token_source(file: str) -> Callable[[], str] | None:
    """Gives the token of now; None where there is none."""
    if not file and os.environ.get(TOKEN_VARIABLE):
        return lambda: os.environ[TOKEN_VARIABLE]
    path = file
    if not path:
        from kfp import client

        path = os.environ.get(client.KF_PIPELINES_SA_TOKEN_ENV) or client.KF_PIPELINES_SA_TOKEN_PATH
        if not Path(path).is_file():
            return None

    def read() -> str:
        try:
            token = Path(path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError("cannot be read", where="token_file", got=path, hint=type(error).__name__) from None
        if not token:
            raise UsageError("is empty", where="token_file", got=path, expected="a bearer token")
        return token

    return read


def _message(body: Any, *keys: str) -> str:
    """What the server says, in its own words: gRPC's status as JSON, or the upload's own form."""
    try:
        said = json.loads(str(body or ""))
    except ValueError:
        return ""
    found = [said.get(key) for key in keys or ("message", "error_message", "error")] if isinstance(said, dict) else []
    return str(next(filter(None, found), ""))[:500]
