"""What Kubeflow Pipelines 2.17 does to a compiled pipeline: its driver, its launcher and Argo, without a cluster.

::

    backend = Backend(Folder(tmp_path / "bucket"), Process(), tmp_path / "pods")
    run = backend.run(load("pipelines/compiled/pretraining.yaml"), {"root": "…"})
    assert run.state == "SUCCEEDED"

``tests/conformance/test_kubeflow.py`` compares it with what a real backend did. Sources: the recorded cases there, and
where they are silent kubeflow/pipelines, ``backend/src/v2/{driver,component,compiler}``.

- ``values``: parameters as text, as JSON, read back from files; metadata of artifacts.
- ``expressions``: conditions and selectors.
- ``driver``: what a task is given.
- ``launcher``: what happens in its pod, before, while and after the program runs.
- ``backend``: the order of tasks, loops, retries, states, the cache.
- ``objects``, ``containers``: the object store and the engine that are put in.
"""

from tests.support.kubernetes.emulator.backend import Backend, Run, load
from tests.support.kubernetes.emulator.containers import Forked, Podman, Process
from tests.support.kubernetes.emulator.launcher import Attempt, LauncherError
from tests.support.kubernetes.emulator.objects import Folder, Stores

__all__ = ["Attempt", "Backend", "Folder", "Forked", "LauncherError", "Podman", "Process", "Run", "Stores", "load"]
