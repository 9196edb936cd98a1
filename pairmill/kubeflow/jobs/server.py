"""The API server of the cluster that this pod is in, as its service account may use it."""

import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx

from pairmill.errors import InternalError, StorageError, UsageError
from pairmill.retry import TRANSIENT, Again, asked_pause, retried

_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where a pod finds the token of its service account, its namespace, and who signs the server's certificate;
``PAIRMILL_SERVICE_ACCOUNT`` overrides it."""
_TIMEOUT = 30.0
_RIGHTS = "kubectl apply -k manifests/base/jobs gives them (docs/operations.md, Fan-out by a Job)"

Doc = dict[str, Any]


class Exists(InternalError):
    """Somebody has made the object."""


class ApiServer:
    """The API server, with objects of the pod's namespace.

    Raises:
        UsageError: this process is not in a pod, or the pod has no service account.
    """

    def __init__(self) -> None:
        account = Path(os.environ.get("PAIRMILL_SERVICE_ACCOUNT", _ACCOUNT))
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        self._account = account
        if not host or not (account / "token").is_file():
            raise UsageError(
                "a Job is started by a pod that has a service account",
                where="fan_out=job",
                got="no KUBERNETES_SERVICE_HOST" if not host else f"no {account / 'token'}",
                hint="leave automountServiceAccountToken on, or compile with fan_out=tasks",
            )
        self.namespace = (account / "namespace").read_text(encoding="utf-8").strip()
        self._client = httpx.Client(
            base_url=f"https://{f'[{host}]' if ':' in host else host}:{port}",
            verify=ssl.create_default_context(cafile=str(account / "ca.crt")),
            timeout=_TIMEOUT,
            trust_env=False,  # the server is inside the cluster, a proxy is not
        )

    def path(self, kind: str, name: str = "", api: str = "/apis/batch/v1") -> str:
        """Return the path of an object of this namespace, or of all of a kind."""
        return f"{api}/namespaces/{self.namespace}/{kind}{f'/{name}' if name else ''}"

    def get(self, path: str, **query: str) -> Doc | None:
        """Return an object or list; None if there is none."""
        answer = self._ask("GET", path, query)
        return None if answer is None else dict(answer.json())

    def text(self, path: str, **query: str) -> str:
        """Return an answer that is plain text, such as a log; empty if there is none."""
        answer = self._ask("GET", path, query)
        return "" if answer is None else answer.text

    def create(self, path: str, body: Doc) -> Doc:
        """Make an object. Raises Exists if there is one of its name."""
        answer = self._ask("POST", path, {}, body)
        if answer is None:
            raise StorageError("the namespace does not exist", where=self.namespace)
        return dict(answer.json())

    def delete(self, path: str) -> None:
        """Delete an object, and what it owns after it."""
        self._ask("DELETE", path, {"propagationPolicy": "Background"})

    def _ask(self, method: str, path: str, query: Mapping[str, str], body: Doc | None = None) -> httpx.Response | None:
        def once() -> httpx.Response | None:
            # The kubelet renews it before it expires.
            token = (self._account / "token").read_text(encoding="utf-8").strip()
            headers = {"Authorization": f"Bearer {token}"}
            try:
                answer = self._client.request(method, path, params=dict(query), json=body, headers=headers)
            except httpx.TransportError as error:
                raise Again(str(error) or type(error).__name__) from error
            if answer.status_code in TRANSIENT:
                raise Again(f"status {answer.status_code}", asked_pause(answer.headers))
            return self._checked(answer, f"{method} {path}")

        return retried(f"{method} {self._client.base_url}{path.lstrip('/')}", once)

    def _checked(self, answer: httpx.Response, where: str) -> httpx.Response | None:
        if answer.is_success:
            return answer
        if answer.status_code == 404:
            return None
        message = _message(answer)
        if answer.status_code == 409:
            raise Exists("exists", where=where, got=message)
        if answer.status_code in {401, 403}:
            raise StorageError("the service account may not do this", where=where, got=message, hint=_RIGHTS)
        raise UsageError("the API server refuses the request", where=where, got=message, hint="check the options")


def _message(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        return f"status {answer.status_code}"
