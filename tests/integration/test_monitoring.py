"""Alerts and dashboards by Prometheus's own programs and Grafana's own model, and the runbook of the alerts."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.support.helpers import PATIENCE, REPOSITORY

MONITORING = REPOSITORY / "manifests/base/monitoring"
RULES = yaml.safe_load((MONITORING / "rules.yaml").read_text())["spec"]
ALERTS = {rule["alert"]: rule for group in RULES["groups"] for rule in group["rules"]}
BOARDS = {path.stem: json.loads(path.read_text()) for path in sorted((MONITORING / "dashboards").glob("*.json"))}

SAMPLER = 'namespace="pairmill", pod="pairmill-sampler-a"'
TASK = 'namespace="team", pod="clean-1", container="main"'
IMAGE = 'image="registry.invalid/pairmill-pipeline@sha256:0"'
OTHER = 'image="registry.invalid/other@sha256:0"'

Case = tuple[Mapping[str, str], Mapping[str, str], str, Mapping[str, str]]
"""Series while it fires, series while it does not, how long they last, and labels of the alert."""

CASES: dict[str, Case] = {
    "PairmillSampleMissing": (
        {'pairmill_sample_ready{node="a"}': "0x60", 'pairmill_sample_ready{node="b"}': "1x60"},
        {'pairmill_sample_ready{node="a"}': "0x20 1x40"},
        "1h",
        {"node": "a"},
    ),
    "PairmillSamplesDiffer": (
        {f'pairmill_sample_info{{namespace="pairmill", node="{node}", digest="{node}"}}': "1x120" for node in "ab"},
        {f'pairmill_sample_info{{namespace="pairmill", node="{node}", digest="a"}}': "1x120" for node in "ab"},
        "2h",
        {"namespace": "pairmill"},
    ),
    "PairmillSamplerDown": (
        {'kube_daemonset_status_number_unavailable{namespace="pairmill", daemonset="pairmill-sampler"}': "2x60"},
        {'kube_daemonset_status_number_unavailable{namespace="pairmill", daemonset="another"}': "2x60"},
        "1h",
        {"namespace": "pairmill", "daemonset": "pairmill-sampler"},
    ),
    "PairmillSamplerFails": (
        {f'kube_pod_init_container_status_restarts_total{{{SAMPLER}, container="sample"}}': "0+1x60"},
        {f'kube_pod_init_container_status_restarts_total{{{SAMPLER}, container="sample"}}': "1x60"},
        "1h",
        {"namespace": "pairmill", "pod": "pairmill-sampler-a", "container": "sample"},
    ),
    "PairmillNodeFull": (
        {'pairmill_node_free_bytes{node="a"}': "9x60", 'pairmill_sample_bytes{node="a"}': "10x60"},
        {'pairmill_node_free_bytes{node="a"}': "11x60", 'pairmill_sample_bytes{node="a"}': "10x60"},
        "1h",
        {"node": "a"},
    ),
    "PairmillNodeSlow": (
        {
            f'pairmill_sample_seconds{{node="{node}"}}': f"{seconds}x60"
            for node, seconds in zip("abc", (300, 310, 1000), strict=True)
        },
        {
            f'pairmill_sample_seconds{{node="{node}"}}': f"{seconds}x60"
            for node, seconds in zip("abc", (900, 990, 1000), strict=True)
        },
        "1h",
        {"node": "c"},
    ),
    "PairmillStageOutOfMemory": (
        {
            f'kube_pod_container_status_last_terminated_reason{{{TASK}, reason="OOMKilled"}}': "1x60",
            f"kube_pod_container_info{{{TASK}, {IMAGE}}}": "1x60",
        },
        {
            f'kube_pod_container_status_last_terminated_reason{{{TASK}, reason="OOMKilled"}}': "1x60",
            f"kube_pod_container_info{{{TASK}, {OTHER}}}": "1x60",
        },
        "1h",
        {
            "namespace": "team",
            "pod": "clean-1",
            "container": "main",
            "reason": "OOMKilled",
            "image": "registry.invalid/pairmill-pipeline@sha256:0",
        },
    ),
    "PairmillStageWaits": (
        {
            'kube_pod_status_phase{namespace="team", pod="clean-1", phase="Pending"}': "1x120",
            f"kube_pod_container_info{{{TASK}, {IMAGE}}}": "1x120",
        },
        {
            'kube_pod_status_phase{namespace="team", pod="clean-1", phase="Pending"}': "0x120",
            f"kube_pod_container_info{{{TASK}, {IMAGE}}}": "1x120",
        },
        "2h",
        {"namespace": "team", "pod": "clean-1"},
    ),
    "PairmillJobFailed": (
        {
            'kube_job_status_failed{namespace="team", job_name="pairmill-clean-1"}': "1x60",
            'kube_job_failed{namespace="team", job_name="pairmill-clean-1", condition="true"}': "1x60",
        },
        {
            'kube_job_status_failed{namespace="team", job_name="pairmill-clean-1"}': "1x60",
            'kube_job_failed{namespace="team", job_name="pairmill-clean-1", condition="true"}': "0x60",
        },
        "1h",
        {"namespace": "team", "job_name": "pairmill-clean-1"},
    ),
}


def program(name: str) -> str:
    path = shutil.which(name)
    assert path, f"{name} is needed: apt-get install prometheus"
    return path


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rules without the operator's object around them."""
    path = tmp_path_factory.mktemp("rules") / "rules.yaml"
    path.write_text(yaml.safe_dump(RULES))
    return path


def promtool(*words: str | Path) -> None:
    done = subprocess.run([program("promtool"), *words], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_takes_the_rules(rules: Path) -> None:
    promtool("check", "rules", rules)


def test_every_alert_has_a_case_and_a_part_of_the_runbook() -> None:
    assert set(CASES) == set(ALERTS)
    runbook = (REPOSITORY / "docs/monitoring.md").read_text()
    parts = re.findall(r"^### (\w+)$", runbook, re.MULTILINE)
    assert sorted(parts) == sorted(ALERTS)
    for name, rule in ALERTS.items():
        assert rule["annotations"]["runbook_url"] == f"docs/monitoring.md#{name.lower()}"


def text_of(name: str, labels: Mapping[str, str], values: Mapping[str, str]) -> str:
    """The summary of an alert as Prometheus fills it in, for the templates that the rules use."""
    text = ALERTS[name]["annotations"]["summary"]
    for label, value in labels.items():
        text = text.replace(f"{{{{ $labels.{label} }}}}", value)
    for pattern, value in values.items():
        text = text.replace(pattern, value)
    assert "{{" not in text, text
    return str(text)


VALUES: dict[str, dict[str, str]] = {
    "PairmillSamplesDiffer": {"{{ $value }}": "2"},
    "PairmillSamplerDown": {"{{ $value }}": "2"},
    "PairmillSamplerFails": {"{{ $value | humanize }}": "60"},
    "PairmillNodeFull": {"{{ $value | humanize1024 }}": "9"},
    "PairmillNodeSlow": {"{{ $value | humanizeDuration }}": "16m 40s"},
}


@pytest.mark.parametrize("name", CASES)
def test_an_alert_fires_when_it_should_and_only_then(rules: Path, name: str, tmp_path: Path) -> None:
    firing, quiet, after, labels = CASES[name]
    alert = {
        "exp_labels": {**labels, **ALERTS[name]["labels"]},
        "exp_annotations": {
            "summary": text_of(name, labels, VALUES.get(name, {})),
            "runbook_url": ALERTS[name]["annotations"]["runbook_url"],
        },
    }
    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": series, "values": values} for series, values in case.items()],
            "alert_rule_test": [{"eval_time": after, "alertname": name, "exp_alerts": expected}],
        }
        for case, expected in ((firing, [alert]), (quiet, []))
    ]
    path = tmp_path / "tests.yaml"
    path.write_text(yaml.safe_dump({"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": tests}))
    promtool("test", "rules", path)


# --- dashboards -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BOARDS)
def test_grafana_knows_every_field(name: str) -> None:
    model = json.loads(json.dumps(Dashboard.from_json(BOARDS[name]), cls=JSONEncoder))
    assert fields(BOARDS[name]) - fields(model) == set()


def fields(value: Any, path: str = "") -> set[tuple[str, str]]:
    """Every place of a JSON value, with what it holds."""
    if isinstance(value, dict):
        return {place for key, item in value.items() for place in fields(item, f"{path}/{key}")}
    if isinstance(value, list):
        return {place for index, item in enumerate(value) for place in fields(item, f"{path}/{index}")}
    return {(path, json.dumps(value))}


START = 1_700_000_000
"""Seconds since the epoch of the first sample of :data:`SERIES`."""

SERIES = {
    'pairmill_sample_ready{node="a"}': (1, 1),
    'pairmill_sample_info{node="a",fingerprint="f",digest="d"}': (1, 1),
    'pairmill_sample_bytes{node="a"}': (10, 10),
    'pairmill_sample_tokens{node="a"}': (10, 10),
    'pairmill_sample_seconds{node="a"}': (10, 10),
    'pairmill_sample_read_bytes{node="a"}': (10, 10),
    'pairmill_node_free_bytes{node="a"}': (10, 10),
    'kube_pod_status_phase{namespace="team",pod="clean-1",phase="Running"}': (1, 1),
    f"kube_pod_container_info{{{TASK},{IMAGE}}}": (1, 1),
    f"kube_pod_container_info{{{TASK.replace('clean-1', 'web')},{OTHER}}}": (1, 1),
    f"container_cpu_usage_seconds_total{{{TASK}}}": (0, 600),
    f"container_cpu_usage_seconds_total{{{TASK.replace('clean-1', 'web')}}}": (0, 600),
    f"container_memory_working_set_bytes{{{TASK}}}": (50, 50),
    f'kube_pod_container_resource_limits{{{TASK},resource="memory"}}': (100, 100),
    'container_network_receive_bytes_total{namespace="team",pod="clean-1"}': (0, 60000),
    'kube_job_status_succeeded{job_name="pairmill-clean-1"}': (3, 3),
    f"kube_pod_container_status_restarts_total{{{TASK}}}": (0, 2),
}
"""First and last value of each series, 600 seconds apart."""


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real Prometheus that holds the series; its address."""
    folder = tmp_path_factory.mktemp("prometheus")
    lines = [
        # OpenMetrics has no blank between labels.
        f"{series.replace(', ', ',')} {first + (last - first) * step / 20:g} {START + 30 * step}"
        for series, (first, last) in sorted(SERIES.items())
        for step in range(21)
    ]
    (folder / "series.txt").write_text("\n".join([*lines, "# EOF", ""]))
    promtool("tsdb", "create-blocks-from", "openmetrics", folder / "series.txt", folder / "data")
    (folder / "prometheus.yml").write_text("global: {}\n")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    command = [program("prometheus"), f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    command += [f"--web.listen-address={address}", "--storage.tsdb.retention.time=100y", "--log.level=error"]
    with (folder / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            while not is_ready(address):
                assert process.poll() is None, (folder / "log").read_text()
                time.sleep(0.05)
            yield f"http://{address}"
        finally:
            process.terminate()


def is_ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/-/ready", timeout=PATIENCE) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def ask(prometheus: str, expression: str) -> list[dict[str, Any]]:
    query = urllib.parse.urlencode({"query": expression, "time": START + 600})
    with urllib.request.urlopen(f"{prometheus}/api/v1/query?{query}", timeout=PATIENCE) as answer:
        return list(json.load(answer)["data"]["result"])


PANELS = {f"{name}: {panel['title']}": panel for name, board in BOARDS.items() for panel in board["panels"]}


@pytest.mark.parametrize("title", PANELS)
def test_prometheus_answers_a_panel(prometheus: str, title: str) -> None:
    for target in PANELS[title]["targets"]:
        (series,) = ask(prometheus, target["expr"])
        # Of two pods that work, one has another image.
        assert series["metric"].get("pod", "clean-1") == "clean-1"
        assert float(series["value"][1]) >= 0


def test_figures_of_panels_are_right(prometheus: str) -> None:
    value = {
        title: float(ask(prometheus, panel["targets"][0]["expr"])[0]["value"][1]) for title, panel in PANELS.items()
    }
    assert value["sampler: Nodes with a complete sample"] == 1
    assert value["sampler: Nodes without one"] == 0
    assert value["stages: Cores in use"] == pytest.approx(1, rel=0.01)
    assert value["stages: Part of the memory limit"] == 0.5
    assert value["stages: Read from the network"] == pytest.approx(100, rel=0.01)


def test_the_sampler_serves_what_is_asked(prometheus: str) -> None:
    page = (REPOSITORY / "pairmill/stages/sample/node/serve.py").read_text()
    served = {f"pairmill_{name}" for name in re.findall(r'gauge\("(\w+)"', page)}
    asked = {name for rule in ALERTS.values() for name in re.findall(r"\bpairmill_\w+", rule["expr"])}
    asked |= {name for panel in PANELS.values() for name in re.findall(r"\bpairmill_\w+", panel["targets"][0]["expr"])}
    assert asked
    assert asked <= served
