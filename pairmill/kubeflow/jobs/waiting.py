"""What a Job waits for, in words: Kueue's quota, a quota of the namespace, a node, an image."""

from typing import Final

from pairmill.errors import StorageError, UsageError
from pairmill.kubeflow.jobs.server import ApiServer, Doc

_KUEUE: Final = "/apis/kueue.x-k8s.io"


def check_queue(server: ApiServer, queue: str) -> None:
    """Raise UsageError if there is no such queue, or no Kueue."""
    if not queue:
        return
    api = _kueue(server)
    if not api:
        raise UsageError("this cluster has no Kueue", where="queue", got=queue, hint="leave queue= out, or install it")
    try:
        queues = server.get(server.path("localqueues", api=api))
    except StorageError:
        return  # it may not look; Kueue says it too
    names = sorted(item["metadata"]["name"] for item in (queues or {}).get("items", []))
    if queue not in names:
        raise UsageError(
            f"no such LocalQueue in the namespace {server.namespace}",
            where="queue",
            got=queue,
            expected=", ".join(names) or f"one that was made: kubectl -n {server.namespace} get localqueues has none",
        )


def reason_of_wait(server: ApiServer, job: Doc, queue: str) -> str:
    """Return what pods of a Job wait for; empty if that is not known, or if they only begin."""
    try:
        return _of_queue(server, job, queue) if job["spec"].get("suspend") else _of_pods(server, job)
    except StorageError as error:
        return f"not known, {error.got}"


def _kueue(server: ApiServer) -> str:
    group = server.get(_KUEUE)
    return f"{_KUEUE}/{group['preferredVersion']['version']}" if group else ""


def _of_queue(server: ApiServer, job: Doc, queue: str) -> str:
    api, uid = _kueue(server), job["metadata"]["uid"]
    query = {"labelSelector": f"kueue.x-k8s.io/job-uid={uid}"}
    workloads = (server.get(server.path("workloads", api=api), **query) or {}).get("items", []) if api else []
    for workload in workloads:
        conditions = {item["type"]: item for item in workload.get("status", {}).get("conditions", [])}
        for name in ("QuotaReserved", "Admitted"):
            if conditions.get(name, {}).get("status") == "False":
                return f"the queue {queue}: {conditions[name].get('message', name)}"
    if not workloads:
        return f"the queue {queue}: Kueue has not taken the Job; its controller may not run, or not look here"
    return f"the queue {queue}"


def _of_pods(server: ApiServer, job: Doc) -> str:
    name = job["metadata"]["name"]
    query = {"labelSelector": f"batch.kubernetes.io/job-name={name}", "fieldSelector": "status.phase=Pending"}
    pods = (server.get(server.path("pods", api="/api/v1"), **query, limit="50") or {}).get("items", [])
    for pod in pods:
        status = pod.get("status", {})
        for item in status.get("conditions", []):
            if item["type"] == "PodScheduled" and item["status"] == "False":
                return f"a node: {item.get('message', item.get('reason', ''))}"
        for item in status.get("containerStatuses", []):
            waiting = item.get("state", {}).get("waiting", {})
            if waiting.get("reason") not in {None, "ContainerCreating", "PodInitializing"}:
                return f"the image or what the pod mounts: {waiting['reason']}, {waiting.get('message', '')}"
    if pods:
        return ""
    query = {"fieldSelector": f"involvedObject.kind=Job,involvedObject.name={name},reason=FailedCreate"}
    events = (server.get(server.path("events", api="/api/v1"), **query) or {}).get("items", [])
    last = max(events, key=lambda item: item.get("lastTimestamp") or item.get("eventTime") or "", default=None)
    return f"its pods may not be made: {last['message']}" if last else ""
