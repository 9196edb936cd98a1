"""Tags of a task's run in MLflow: what is posted, by whom, and what becomes of a server that refuses."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from pairmill.engine.manifest import Ledger, Manifest
from pairmill.lineage import tracking
from tests.support.servers.posts import Posts


def tokenized(tokens: dict[str, int]) -> Manifest:
    shards = {
        task: Ledger(rows_in=1, rows_kept=1, rows_out=1, measures={"response_tokens": count})
        for task, count in tokens.items()
    }
    return Manifest("tokenize", 1, "f" * 16, {}, [], Ledger.sum(shards.values()), [], shards)


def test_tags_name_the_result_and_the_shares_of_its_sources() -> None:
    assert tracking.tags_of(tokenized({"flan__a": 1, "flan__b": 2, "gsm8k": 1}), "s3://bucket/x") == {
        "pairmill.stage": "tokenize",
        "pairmill.fingerprint": "f" * 16,
        "pairmill.output": "s3://bucket/x",
        "pairmill.share.flan": "0.750000",
        "pairmill.share.gsm8k": "0.250000",
    }


def test_tags_are_within_the_bounds_of_mlflow() -> None:
    # Of many sources the largest; characters that MLflow refuses in a name are replaced.
    tokens = {f"source{number:03}": number + 1 for number in range(200)} | {"größe=α" + "x" * 300: 1000}
    tags = tracking.tags_of(tokenized(tokens), "s3://bucket/" + "x" * 9000)
    assert len(tags) <= 100
    assert all(len(name) <= 250 and len(value) <= 5000 for name, value in tags.items())
    assert "pairmill.share.source199" in tags
    assert "pairmill.share.source000" not in tags
    assert any(name.startswith("pairmill.share.gr__e__x") for name in tags)


def test_a_task_posts_them_to_its_run() -> None:
    with Posts() as posts:
        tracking.set_tags(
            tokenized({"a": 1}).dump(), "out", {"MLFLOW_RUN_ID": "r1", "MLFLOW_TRACKING_URI": f"{posts.url}/"}
        )
    assert posts.paths == ["/api/2.0/mlflow/runs/log-batch"]
    (value,) = posts.values
    assert value["run_id"] == "r1"
    assert {tag["key"]: tag["value"] for tag in value["tags"]} == tracking.tags_of(tokenized({"a": 1}), "out")
    assert "authorization" not in posts.headers[0]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"MLFLOW_TRACKING_TOKEN": "t"}, "Bearer t"),
        (
            {"MLFLOW_TRACKING_USERNAME": "u", "MLFLOW_TRACKING_PASSWORD": "p"},
            "Basic " + base64.b64encode(b"u:p").decode(),
        ),
        ({"MLFLOW_TRACKING_AUTH": "kubernetes-namespaced"}, "Bearer of-the-account"),
    ],
)
def test_credentials_are_those_that_kubeflow_gives(
    variables: dict[str, str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("of-the-account\n")
    monkeypatch.setattr(tracking, "_ACCOUNT", str(tmp_path / "token"))
    with Posts() as posts:
        environment = {"MLFLOW_RUN_ID": "r1", "MLFLOW_TRACKING_URI": posts.url, "MLFLOW_WORKSPACE": "team"}
        tracking.set_tags(tokenized({"a": 1}).dump(), "out", environment | variables)
    assert posts.headers[0]["authorization"] == expected
    assert posts.headers[0]["x-mlflow-workspace"] == "team"


@pytest.mark.parametrize("status", [302, 401, 500])
def test_a_server_that_refuses_is_a_warning_without_the_token(status: int, caplog: pytest.LogCaptureFixture) -> None:
    with Posts(status) as posts:
        environment = {"MLFLOW_RUN_ID": "r1", "MLFLOW_TRACKING_URI": posts.url, "MLFLOW_TRACKING_TOKEN": "secret-1"}
        tracking.set_tags(tokenized({"a": 1}).dump(), "out", environment)
    # No redirect is followed: it might take the token elsewhere.
    assert len(posts.values) == 1
    assert f"MLflow has no tags of this task: {posts.url}/api/2.0/mlflow/runs/log-batch: refused" in caplog.text
    assert str(status) in caplog.text
    assert "secret-1" not in caplog.text


def test_a_server_that_is_not_there_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with Posts() as posts:
        gone = posts.url
    tracking.set_tags(tokenized({"a": 1}).dump(), "out", {"MLFLOW_RUN_ID": "r1", "MLFLOW_TRACKING_URI": gone})
    tracking.set_tags(tokenized({"a": 1}).dump(), "out", {"MLFLOW_RUN_ID": "r1"})
    assert caplog.text.count("MLflow has no tags of this task: ") == 2
