"""The Kubernetes manifests: rendered by kubectl, checked against the schemas, read by the real command line."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pairmill.interface import cli
from pairmill.interface.launcher import SECRETS
from pairmill.kubeflow.placement import QUEUE, QUEUE_PRIORITY, Placement
from pairmill.stages.sample.command import COMMANDS
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.sample.node.prepare import PrepareConfig
from pairmill.stages.sample.node.serve import PORT, ServeConfig
from pairmill.stages.sample.node.wait import WaitConfig
from tests.support import lazy
from tests.support.helpers import PATIENCE, REPOSITORY

kubernetes_validate = lazy.Module("kubernetes_validate")
trainer = lazy.Module("kubeflow_trainer_api.models")
training = lazy.Module("kubeflow.training.models")

MANIFESTS = REPOSITORY / "manifests"
KUBERNETES = "1.34"
FOLDERS = (
    "base/jobs",
    "base/dataset-runtime",
    "base/monitoring",
    "base/sampler-daemonset",
    "base/training-runtime",
    "examples/dataset",
    "examples/stage-in",
    "examples/team",
    "examples/trainer",
    "examples/trainjob",
    "overlays/eks",
    "overlays/gke",
    "overlays/kind",
    "overlays/minio",
)
"""Everything that can be applied, and the base."""
BUCKETS = {"overlays/eks": "s3", "overlays/gke": "gs", "overlays/minio": "minio"}
"""Overlays for nodes with GPUs that read from a bucket, with the scheme of its URIs."""
OVERLAYS = (*BUCKETS, "overlays/kind")
NODE_FOLDER = "/dev/shm/pairmill"
PLAN_LABEL = "pairmill.dev/plan"
ROOT_ANNOTATION = "pairmill.dev/root"
SECRET = Placement().secret
HARDENED = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "runAsGroup": 65532,
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
OURS = {"prepare", "sample", "report", "pairmill-wait", "pairmill-stage-in"}
"""Containers that run the sampler's own entry point."""

Doc = dict[str, Any]


def render(folder: Path) -> list[Doc]:
    kubectl = Path(sys.executable).with_name("kubectl")
    done = subprocess.run([kubectl, "kustomize", folder], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return [doc for doc in yaml.safe_load_all(done.stdout) if doc]


@pytest.fixture(scope="module")
def rendered() -> dict[str, list[Doc]]:
    return {name: render(MANIFESTS / name) for name in FOLDERS}


def one(docs: list[Doc], kind: str, prefix: str = "") -> Doc:
    found = [doc for doc in docs if doc["kind"] == kind and doc["metadata"]["name"].startswith(prefix)]
    assert len(found) == 1, [doc["metadata"]["name"] for doc in found]
    return found[0]


def templates(doc: Doc) -> list[Doc]:
    """The pod templates of an object, whatever kind it is."""
    match doc["kind"]:
        case "DaemonSet" | "Job":
            return [doc["spec"]["template"]]
        case "PyTorchJob":
            return [replica["template"] for replica in doc["spec"]["pytorchReplicaSpecs"].values()]
        case "ClusterTrainingRuntime":
            jobs = doc["spec"]["template"]["spec"]["replicatedJobs"]
            return [job["template"]["spec"]["template"] for job in jobs]
    return []


def pods(docs: list[Doc]) -> Iterator[tuple[Doc, Doc]]:
    for doc in docs:
        for template in templates(doc):
            yield doc, template


def claimed(doc: Doc) -> list[Doc]:
    """The volumes that Trainer makes for a job, and adds to its pods."""
    policies = doc["spec"]["template"]["spec"].get("volumeClaimPolicies", [])
    return [claim["metadata"] for policy in policies for claim in policy["templates"]]


def containers(template: Doc) -> list[Doc]:
    spec = template["spec"]
    return [*spec.get("initContainers", []), *spec["containers"]]


def named(template: Doc, name: str) -> Doc:
    return next(container for container in containers(template) if container["name"] == name)


def validate(doc: Doc) -> None:
    """Check an object against the schema of its kind; unknown fields are refused."""
    match doc["kind"]:
        case "ClusterTrainingRuntime":
            assert trainer.TrainerV1alpha1ClusterTrainingRuntime.from_dict(doc).to_dict() == doc
        case "TrainJob":
            assert trainer.TrainerV1alpha1TrainJob.from_dict(doc).to_dict() == doc
        case "PodMonitor" | "PrometheusRule":
            # Checked by Prometheus itself: tests/integration/test_monitoring.py.
            assert doc["apiVersion"] == "monitoring.coreos.com/v1"
        case "PyTorchJob":
            known(doc, training.KubeflowOrgV1PyTorchJob)
            known(doc["spec"], training.KubeflowOrgV1PyTorchJobSpec)
            for replica in doc["spec"]["pytorchReplicaSpecs"].values():
                known(replica, training.KubeflowOrgV1ReplicaSpec)
        case _:
            kubernetes_validate.validate(doc, KUBERNETES, strict=True)
    for template in templates(doc):
        spec = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "any"}, "template": template}
        kubernetes_validate.validate(spec, KUBERNETES, strict=True)


def known(value: Doc, model: Any) -> None:
    assert set(value) <= set(model.attribute_map.values()), set(value) - set(model.attribute_map.values())


def environment(container: Doc, template: Doc, docs: list[Doc]) -> dict[str, str]:
    """What the kubelet would put into a container's environment."""
    values: dict[str, str] = {}
    for source in container.get("envFrom", []):
        if "secretRef" in source:
            assert source["secretRef"] == {"name": SECRET, "optional": True}
        else:
            values |= one(docs, "ConfigMap", source["configMapRef"]["name"])["data"]
    for variable in container.get("env", []):
        if "value" in variable:
            values[variable["name"]] = variable["value"]
        else:
            path = variable["valueFrom"]["fieldRef"]["fieldPath"]
            found = re.fullmatch(r"metadata\.(labels|annotations)\['(.*)'\]", path)
            assert found, path
            values[variable["name"]] = template["metadata"].get(found[1], {}).get(found[2], "")
    return values


def options(container: Doc, template: Doc, docs: list[Doc]) -> Any:
    """The options that the program of a container would run with, by the program's own parser."""
    values = environment(container, template, docs)
    arguments = [re.sub(r"\$\((\w+)\)", lambda match: values[match[1]], text) for text in container["args"]]
    command = COMMANDS.get(arguments[0])
    if command is not None:
        return cli.build(cli.named(command.config_class), cli.split(arguments[1:]))
    return cli.build(SampleConfig, cli.split(arguments))


# --- all of them ----------------------------------------------------------------------------------------------------


def test_every_folder_that_can_be_applied_is_looked_at() -> None:
    found = {
        str(path.parent.relative_to(MANIFESTS))
        for path in MANIFESTS.rglob("kustomization.yaml")
        if yaml.safe_load(path.read_text())["kind"] == "Kustomization"
    }
    assert found - {"examples/script"} == set(FOLDERS)


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_renders_and_fits_the_schemas(rendered: dict[str, list[Doc]], folder: str) -> None:
    assert rendered[folder]
    for doc in rendered[folder]:
        validate(doc)
    assert not any(doc["kind"] == "PodTemplate" for doc in rendered[folder]), "a source of the components was left"


def test_the_schemas_refuse_what_is_wrong(rendered: dict[str, list[Doc]]) -> None:
    doc = one(rendered["overlays/kind"], "DaemonSet")
    doc = yaml.safe_load(yaml.safe_dump(doc))
    doc["spec"]["template"]["spec"]["containers"][0]["imagePolicy"] = "Always"
    with pytest.raises(kubernetes_validate.ValidationError):
        validate(doc)


def test_every_container_is_hardened(rendered: dict[str, list[Doc]]) -> None:
    seen = set()
    for docs in rendered.values():
        for doc, template in pods(docs):
            for container in containers(template):
                if doc["kind"] == "ClusterTrainingRuntime" and container["name"] == "node":
                    continue  # the trainer's own
                expected = dict(HARDENED)
                if container["name"] == "prepare":
                    # Hands the folder over: root, and of root's powers this one.
                    expected |= {"runAsNonRoot": False, "runAsUser": 0, "runAsGroup": 0}
                    expected["capabilities"] = {"drop": ["ALL"], "add": ["CHOWN"]}
                assert container["securityContext"] == expected, container["name"]
                seen.add(container["name"])
            # Of a volume that Trainer makes, the group; all else is the container's.
            assert template["spec"].get("securityContext", {}).keys() <= {"fsGroup"}
            assert not any(template["spec"].get(key) for key in ("hostNetwork", "hostPID", "hostIPC"))
    assert seen == OURS | {"trainer", "dataset-initializer"}


def test_every_container_has_limits_and_mounts_what_the_pod_has(rendered: dict[str, list[Doc]]) -> None:
    looked = 0
    for docs in rendered.values():
        for doc, template in pods(docs):
            volumes = {volume["name"] for volume in [*template["spec"].get("volumes", []), *claimed(doc)]}
            for container in containers(template):
                assert {mount["name"] for mount in container.get("volumeMounts", [])} <= volumes
                if doc["kind"] != "ClusterTrainingRuntime" or container["name"] in OURS:
                    assert container["resources"]["limits"]["memory"]
                    assert container["resources"]["requests"]["memory"]
                looked += 1
    assert looked >= 15


def test_what_runs_once_reserves_no_cores_for_the_life_of_its_pod(rendered: dict[str, list[Doc]]) -> None:
    # Kubernetes takes the largest of what init containers ask for and what the others ask for together.
    looked = 0
    for docs in rendered.values():
        for _, template in pods(docs):
            for container in template["spec"].get("initContainers", []):
                asked = str(container["resources"]["requests"].get("cpu", "0"))
                cores = float(asked.removesuffix("m")) / (1000 if asked.endswith("m") else 1)
                assert cores <= 0.5, (container["name"], asked)
                assert "cpu" not in container["resources"]["limits"], "it takes the cores that are idle"
                looked += 1
    assert looked > 5


def test_images_are_pinned_or_placeholders(rendered: dict[str, list[Doc]]) -> None:
    version = re.search(r'^version = "(.*)"$', (REPOSITORY / "rust" / "Cargo.toml").read_text(), re.MULTILINE)
    assert version
    local = f"localhost/pairmill-sampler:{version[1]}"
    seen = set()
    for folder, docs in rendered.items():
        for _, template in pods(docs):
            for container in containers(template):
                image = container["image"]
                placeholder = folder == "base/sampler-daemonset" and image == "pairmill-sampler"
                assert placeholder or image == local or re.search(r"@sha256:[0-9a-f]{64}$", image), image
                seen.add(image)
    assert len(seen) == 4


def test_arguments_are_those_of_the_command_line(rendered: dict[str, list[Doc]]) -> None:
    seen = []
    for folder, docs in rendered.items():
        if folder == "base/sampler-daemonset":
            continue  # without a plan or a tokenized folder; an overlay names one
        for _, template in pods(docs):
            for container in containers(template):
                if container["name"] not in OURS:
                    continue
                assert "command" not in container
                seen.append((container["name"], type(options(container, template, docs))))
    assert set(seen) == {
        ("prepare", PrepareConfig),
        ("sample", SampleConfig),
        ("report", ServeConfig),
        ("pairmill-wait", WaitConfig),
        ("pairmill-stage-in", SampleConfig),
    }


# --- the sampler ----------------------------------------------------------------------------------------------------


@pytest.fixture(params=OVERLAYS)
def overlay(request: pytest.FixtureRequest, rendered: dict[str, list[Doc]]) -> list[Doc]:
    return rendered[request.param]


@pytest.fixture
def pod(overlay: list[Doc]) -> Doc:
    found: Doc = one(overlay, "DaemonSet")["spec"]["template"]
    return found


def test_the_folder_is_handed_over_before_it_is_written(pod: Doc) -> None:
    assert [container["name"] for container in pod["spec"]["initContainers"]] == ["prepare", "sample"]
    assert [container["name"] for container in pod["spec"]["containers"]] == ["report"]


def test_the_label_is_the_plan_that_is_carried_out(overlay: list[Doc], pod: Doc) -> None:
    label = pod["metadata"]["labels"][PLAN_LABEL]
    assert re.fullmatch("[0-9a-f]{16}", label)
    assert options(named(pod, "sample"), pod, overlay).plan == label


def plan_of(folder: Path) -> str:
    """An overlay's patch that names the plan: a file, or among its other edits."""
    if (folder / "plan.yaml").exists():
        return (folder / "plan.yaml").read_text()
    patches = yaml.safe_load((folder / "kustomization.yaml").read_text())["patches"]
    (found,) = (one["patch"] for one in patches if PLAN_LABEL in one.get("patch", ""))
    return str(found)


def test_all_edits_of_a_store_of_ones_own_are_in_one_file(rendered: dict[str, list[Doc]]) -> None:
    folder = MANIFESTS / "overlays" / "minio"
    assert [path.name for path in folder.iterdir()] == ["kustomization.yaml"]
    marked = [line for line in (folder / "kustomization.yaml").read_text().splitlines() if "# EDIT: " in line]
    wanted = ("newName:", "digest:", "ROOT=", PLAN_LABEL, "requests:", "limits:", "value: 9000")
    assert len(marked) == len(wanted)
    assert all(word in line for word, line in zip(wanted, marked, strict=True))
    policy = one(rendered["overlays/minio"], "NetworkPolicy", "pairmill-sampler")
    assert policy["spec"]["egress"][1]["ports"][0]["port"] == 9000


@pytest.mark.parametrize("folder", OVERLAYS)
def test_another_plan_is_one_changed_word(rendered: dict[str, list[Doc]], folder: str, tmp_path: Path) -> None:
    plan = plan_of(MANIFESTS / folder)
    assert plan.count("0000000000000000") == 1
    (tmp_path / "plan.yaml").write_text(plan.replace("0000000000000000", "1234567890abcdef"))
    kustomization = {"resources": [relative(MANIFESTS / folder, tmp_path)], "patches": [{"path": "plan.yaml"}]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    before, after = (yaml.safe_dump_all(docs).splitlines() for docs in (rendered[folder], render(tmp_path)))
    changed = [(old.strip(), new.strip()) for old, new in zip(before, after, strict=True) if old != new]
    assert changed == [(f"{PLAN_LABEL}: '0000000000000000'", f"{PLAN_LABEL}: 1234567890abcdef")]


def test_what_the_sampler_is_told(overlay: list[Doc], pod: Doc) -> None:
    told = options(named(pod, "sample"), pod, overlay)
    assert told.output_path == f"{NODE_FOLDER}/{{fingerprint}}"
    mounts = {mount["mountPath"]: mount for mount in named(pod, "sample")["volumeMounts"]}
    project = set() if "://" in told.root else {told.root}
    assert set(mounts) == {NODE_FOLDER, SECRETS, str(Path(told.prefix_config_path).parent), *project}
    assert [path for path, mount in mounts.items() if not mount.get("readOnly")] == [NODE_FOLDER]
    # Every key is used, and an option that is not given by the overlay is the stage's own default.
    settings = one(overlay, "ConfigMap", "pairmill-sampler")["data"]
    used = re.findall(r"\$\((\w+)\)", " ".join(named(pod, "sample")["args"]))
    assert set(used) == {*settings, "PLAN"}
    for name in ("epochs", "seed", "context_size", "min_resp_length", "profile", "layout", "keep", "workers"):
        assert getattr(told, name) == SampleConfig.__dataclass_fields__[name].default, name


def test_the_rules_are_those_of_the_repository(overlay: list[Doc], pod: Doc) -> None:
    top = REPOSITORY / "prefix_config.yaml"
    assert top.is_symlink()
    assert top.resolve() == MANIFESTS / "base" / "sampler-daemonset" / "prefix_config.yaml"
    rules = one(overlay, "ConfigMap", "pairmill-rules")
    assert rules["data"] == {"prefix_config.yaml": top.read_text()}
    volume = next(volume for volume in pod["spec"]["volumes"] if volume["name"] == "rules")
    assert volume["configMap"]["name"] == rules["metadata"]["name"]


def test_the_node_folder_is_made_by_the_kubelet_and_reported_read_only(pod: Doc) -> None:
    volumes = {volume["name"]: volume.get("hostPath") for volume in pod["spec"]["volumes"]}
    assert volumes["samples"] == {"path": NODE_FOLDER, "type": "DirectoryOrCreate"}
    mounts = {container["name"]: container["volumeMounts"] for container in containers(pod)}
    writes = {
        name: not mount.get("readOnly", False)
        for name, all_of in mounts.items()
        for mount in all_of
        if mount["name"] == "samples"
    }
    assert writes == {"sample": True, "report": False}
    # A volume of the folder itself would be what the kubelet found behind a link; so `prepare` has the folder above.
    above = str(Path(NODE_FOLDER).parent)
    assert volumes["shm"] == {"path": above, "type": "Directory"}
    assert mounts["prepare"] == [{"name": "shm", "mountPath": above}]
    assert [name for name, all_of in mounts.items() if "shm" in {mount["name"] for mount in all_of}] == ["prepare"]


def test_the_metrics_port_is_one_everywhere(overlay: list[Doc], pod: Doc) -> None:
    report = named(pod, "report")
    assert options(report, pod, overlay).port == PORT
    assert report["ports"] == [{"name": "metrics", "containerPort": PORT}]
    assert pod["metadata"]["annotations"]["prometheus.io/port"] == str(PORT)
    policy = one(overlay, "NetworkPolicy")
    assert policy["spec"]["ingress"] == [{"ports": [{"protocol": "TCP", "port": "metrics"}]}]
    assert {report[probe]["httpGet"]["port"] for probe in ("readinessProbe", "livenessProbe")} == {"metrics"}


def test_the_scheduler_reserves_what_the_sampler_may_write(pod: Doc) -> None:
    resources = named(pod, "sample")["resources"]
    assert resources["requests"]["memory"] == resources["limits"]["memory"]


def test_the_sampler_may_do_nothing_in_the_cluster(overlay: list[Doc], pod: Doc) -> None:
    account = one(overlay, "ServiceAccount")
    assert account["automountServiceAccountToken"] is False
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert pod["spec"]["serviceAccountName"] == account["metadata"]["name"]
    assert one(overlay, "Role")["rules"] == []
    assert not [doc for doc in overlay if doc["kind"].startswith("ClusterRole")]


@pytest.mark.parametrize("folder", BUCKETS)
def test_nodes_with_gpus_read_from_a_bucket_with_nothing_mounted(rendered: dict[str, list[Doc]], folder: str) -> None:
    docs = rendered[folder]
    template = one(docs, "DaemonSet")["spec"]["template"]
    assert options(named(template, "sample"), template, docs).root == f"{BUCKETS[folder]}://BUCKET/pairmill"
    assert {volume["name"] for volume in template["spec"]["volumes"]} == {"samples", "shm", "rules", "credentials"}
    spec = template["spec"]
    assert {"key": "nvidia.com/gpu", "operator": "Exists"} in spec["tolerations"]
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    keys = [term["matchExpressions"][0]["key"] for term in terms]
    assert keys == ["cloud.google.com/gke-accelerator", "nvidia.com/gpu.present"]


def test_only_the_writer_has_the_credentials_of_the_store(pod: Doc) -> None:
    (volume,) = (volume for volume in pod["spec"]["volumes"] if "secret" in volume)
    assert volume["secret"] == {"secretName": SECRET, "optional": True}
    having = [
        container["name"]
        for container in containers(pod)
        if any("secretRef" in source for source in container.get("envFrom", []))
        or any(mount["name"] == volume["name"] for mount in container["volumeMounts"])
    ]
    assert having == ["sample"]
    # A key of the secret must not stand for an option: of two sources the later one counts.
    assert ["secretRef" in source for source in named(pod, "sample")["envFrom"]] == [True, False]


def test_the_platforms_give_the_sampler_their_identity(rendered: dict[str, list[Doc]]) -> None:
    def annotations(folder: str) -> set[str]:
        return set(one(rendered[folder], "ServiceAccount")["metadata"].get("annotations", {}))

    assert annotations("overlays/gke") == {"iam.gke.io/gcp-service-account"}
    assert annotations("overlays/eks") == {"eks.amazonaws.com/role-arn"}
    assert annotations("overlays/minio") == annotations("overlays/kind") == set()
    template = one(rendered["overlays/eks"], "DaemonSet")["spec"]["template"]
    skipped = template["metadata"]["annotations"]["eks.amazonaws.com/skip-containers"].split(",")
    assert {container["name"] for container in containers(template)} - set(skipped) == {"sample"}


@pytest.mark.parametrize(
    ("folder", "ways"),
    [
        ("overlays/kind", [("", 443)]),
        ("overlays/eks", [("", 443)]),
        ("overlays/minio", [("", 9000)]),
        ("overlays/gke", [("", 443), ("169.254.169.252/32", 988), ("169.254.169.254/32", 80)]),
    ],
)
def test_the_sampler_reaches_names_the_store_and_the_platforms_identity(
    rendered: dict[str, list[Doc]], folder: str, ways: list[tuple[str, int]]
) -> None:
    names, *found = one(rendered[folder], "NetworkPolicy")["spec"]["egress"]
    assert names == {"ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]}
    assert [
        ("".join(peer["ipBlock"]["cidr"] for peer in rule.get("to", [])), port["port"])
        for rule in found
        for port in rule["ports"]
    ] == ways


# --- components on jobs of others -----------------------------------------------------------------------------------


def relative(target: Path, folder: Path) -> str:
    """kustomize takes relative paths only."""
    return os.path.relpath(target, folder)


OTHERS: Doc = {
    "volumes": [{"name": "results", "emptyDir": {}}],
    "initContainers": [{"name": "before", "image": "registry.example/before@sha256:" + "0" * 64}],
    "containers": [
        {
            "name": "train",
            "image": "registry.example/train@sha256:" + "0" * 64,
            "volumeMounts": [{"name": "results", "mountPath": "/results"}],
            "securityContext": {"runAsUser": 1000},
        },
        {"name": "beside", "image": "registry.example/beside@sha256:" + "0" * 64},
    ],
}
NAMED: Doc = {
    "labels": {PLAN_LABEL: "1234567890abcdef"},
    "annotations": {ROOT_ANNOTATION: "gs://theirs/project"},
}
BARE: Doc = {"containers": [{"name": "train", "image": "registry.example/train@sha256:" + "0" * 64}]}


def job(spec: Doc, labels: dict[str, str]) -> Doc:
    template = {"metadata": NAMED, "spec": {**spec, "restartPolicy": "Never"}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "theirs", "labels": labels},
        "spec": {"template": template},
    }


def pytorch_job(spec: Doc, labels: dict[str, str], *replicas: str) -> Doc:
    template = {"metadata": NAMED, "spec": spec}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "theirs", "labels": labels},
        "spec": {"pytorchReplicaSpecs": {name: {"replicas": 1, "template": template} for name in replicas}},
    }


def patched(folder: Path, doc: Doc, *components: str) -> Doc:
    (folder / "theirs.yaml").write_text(yaml.safe_dump(doc))
    kustomization = {
        "resources": ["theirs.yaml"],
        "components": [relative(MANIFESTS / "components" / component, folder) for component in components],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    docs = render(folder)
    assert len(docs) == 1
    return docs[0]


JOBS = {
    "job": lambda spec, labels: job(spec, labels),
    "master-and-workers": lambda spec, labels: pytorch_job(spec, labels, "Master", "Worker"),
    "master": lambda spec, labels: pytorch_job(spec, {**labels, "pairmill.dev/replicas": "master"}, "Master"),
    "workers": lambda spec, labels: pytorch_job(spec, {**labels, "pairmill.dev/replicas": "worker"}, "Worker"),
}


@pytest.mark.parametrize("kind", JOBS)
@pytest.mark.parametrize("spec", [BARE, OTHERS], ids=["bare", "full"])
@pytest.mark.parametrize("component", ["stage-in", "wait-for-samples"])
def test_a_component_adds_its_container_and_leaves_the_rest(
    component: str, spec: Doc, kind: str, tmp_path: Path
) -> None:
    value = component.removesuffix("-for-samples")
    doc = JOBS[kind](spec, {"pairmill.dev/samples": value})
    made = patched(tmp_path, doc, component)
    validate(made)
    found, given = templates(made), templates(doc)
    assert len(found) == len(given) == (2 if kind == "master-and-workers" else 1)
    for template in found:
        ours = named(template, f"pairmill-{value}")
        assert ours["securityContext"] == HARDENED
        told = options(ours, template, [])
        assert told.plan == "1234567890abcdef"
        inits = [container["name"] for container in template["spec"]["initContainers"]]
        assert inits == [*(container["name"] for container in spec.get("initContainers", [])), ours["name"]]

        volumes = {volume.pop("name"): volume for volume in template["spec"]["volumes"]}
        samples = volumes.pop("pairmill-samples")
        if component == "stage-in":
            assert samples["emptyDir"]["medium"] == "Memory"
            assert samples["emptyDir"]["sizeLimit"] == ours["resources"]["limits"]["memory"]
            assert told.root == "gs://theirs/project"
            assert volumes.pop("pairmill-credentials") == {"secret": {"secretName": SECRET, "optional": True}}
            assert {"name": "pairmill-credentials", "mountPath": SECRETS, "readOnly": True} in ours["volumeMounts"]
        else:
            assert samples["hostPath"]["path"] == NODE_FOLDER
        assert volumes == {"results": {"emptyDir": {}}} or spec is BARE

        mount = {"name": "pairmill-samples", "mountPath": NODE_FOLDER}
        if component == "wait-for-samples":
            mount["readOnly"] = True
        for container, before in zip(template["spec"]["containers"], spec["containers"], strict=True):
            assert container == {**before, "volumeMounts": [*before.get("volumeMounts", []), mount]}


@pytest.mark.parametrize("component", ["stage-in", "wait-for-samples"])
def test_a_component_leaves_alone_what_has_no_label(component: str, tmp_path: Path) -> None:
    doc = job(OTHERS, {})
    assert patched(tmp_path, doc, component) == doc


def test_components_go_together(tmp_path: Path) -> None:
    """Each brings the security context, which kustomize would refuse to take twice."""
    made = patched(tmp_path, job(BARE, {"pairmill.dev/samples": "wait"}), "stage-in", "wait-for-samples", "security")
    (template,) = templates(made)
    assert [container["name"] for container in template["spec"]["initContainers"]] == ["pairmill-wait"]
    assert named(template, "pairmill-wait")["securityContext"] == HARDENED


def test_a_teams_training_is_queued_starts_together_and_has_no_sidecar(rendered: dict[str, list[Doc]]) -> None:
    docs = rendered["examples/team"]
    job, runtime = one(docs, "TrainJob"), one(docs, "ClusterTrainingRuntime")
    assert job["metadata"]["labels"][QUEUE] == "QUEUE"
    assert job["metadata"]["labels"][QUEUE_PRIORITY] == "PRIORITY"
    assert job["metadata"]["namespace"] == "team"
    assert "namespace" not in runtime["metadata"]
    assert runtime["spec"]["podGroupPolicy"] == {"volcano": {}}
    (template,) = templates(runtime)
    assert template["metadata"]["labels"]["sidecar.istio.io/inject"] == "false"
    assert template["spec"]["tolerations"][0]["key"] in template["spec"]["nodeSelector"]


@pytest.mark.parametrize("name", ["queue", "gang-volcano", "gang-coscheduling", "spot", "no-istio"])
def test_a_component_of_the_cluster_goes_on_every_example(name: str, tmp_path: Path) -> None:
    # Kustomize takes relative paths alone, and none above the folder that it is in.
    shutil.copytree(MANIFESTS, tmp_path / "manifests")
    overlay = tmp_path / "manifests/own"
    overlay.mkdir()
    resources = ["../base/training-runtime", "../examples/trainjob", "../examples/stage-in", "../overlays/kind"]
    content = {"resources": resources, "components": [f"../components/{name}"]}
    (overlay / "kustomization.yaml").write_text(yaml.safe_dump(content))
    with_it = render(overlay)
    (overlay / "kustomization.yaml").write_text(yaml.safe_dump({"resources": resources}))
    without = render(overlay)
    changed = {doc["kind"] for doc in with_it if doc not in without}
    for doc in with_it:
        validate(doc)
    assert (
        changed
        == {
            "queue": {"Job", "TrainJob"},
            "gang-volcano": {"ClusterTrainingRuntime"},
            "gang-coscheduling": {"ClusterTrainingRuntime"},
            "spot": {"ClusterTrainingRuntime", "Job"},
            "no-istio": {"ClusterTrainingRuntime", "DaemonSet", "Job"},
        }[name]
    )


def test_nodes_that_train_are_on_spot_and_their_initializer_is_not(tmp_path: Path) -> None:
    shutil.copytree(MANIFESTS, tmp_path / "manifests")
    overlay = tmp_path / "manifests/own"
    overlay.mkdir()
    resources = ["../base/training-runtime", "../base/dataset-runtime"]
    content = {"resources": resources, "components": ["../components/spot"]}
    (overlay / "kustomization.yaml").write_text(yaml.safe_dump(content))
    spot = {
        (doc["metadata"]["name"], job["name"])
        for doc in render(overlay)
        if doc["kind"] == "ClusterTrainingRuntime"
        for job in doc["spec"]["template"]["spec"]["replicatedJobs"]
        if "tolerations" in job["template"]["spec"]["template"]["spec"]
    }
    assert spot == {("pairmill-torch", "node"), ("pairmill-dataset", "node")}


def test_the_data_set_of_a_trainjob_is_a_plan(rendered: dict[str, list[Doc]]) -> None:
    runtime = one(rendered["base/dataset-runtime"], "ClusterTrainingRuntime")
    job = one(rendered["examples/dataset"], "TrainJob")
    assert job["spec"]["runtimeRef"]["name"] == runtime["metadata"]["name"]
    (initializer, node) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    # What Trainer looks for: the name of the job and of its container, and the label of its step.
    step = initializer["template"]["metadata"]["labels"]["trainer.kubeflow.org/trainjob-ancestor-step"]
    template = initializer["template"]["spec"]["template"]
    (container,) = template["spec"]["containers"]
    assert initializer["name"] == step == container["name"] == "dataset-initializer"
    assert node["dependsOn"] == [{"name": "dataset-initializer", "status": "Complete"}]
    # Trainer replaces the value of this variable by storageUri.
    container["env"][0]["value"] = job["spec"]["initializer"]["dataset"]["storageUri"]
    given = options(container, template, rendered["base/dataset-runtime"])
    assert given.plan == "s3://BUCKET/pairmill/sample/0000000000000000"
    assert given.output_path == "/workspace/dataset"
    assert f"data.path={given.output_path}" in job["spec"]["trainer"]["command"]


def test_the_runtime_stages_in_on_every_node(rendered: dict[str, list[Doc]]) -> None:
    docs = rendered["base/training-runtime"]
    runtime = one(docs, "ClusterTrainingRuntime")
    (template,) = templates(runtime)
    told = options(named(template, "pairmill-stage-in"), template, docs)
    assert told.plan == template["metadata"]["labels"][PLAN_LABEL]
    assert told.root == template["metadata"]["annotations"][ROOT_ANNOTATION]
    assert {"name": "pairmill-samples", "mountPath": NODE_FOLDER} in named(template, "node")["volumeMounts"]
    train = one(rendered["examples/trainjob"], "TrainJob")["spec"]
    assert train["runtimeRef"]["name"] == runtime["metadata"]["name"]
    patch = train["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0]
    assert patch["name"] == runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["name"]
    assert list(patch["template"]["spec"]["template"]["metadata"]["labels"]) == [PLAN_LABEL]
