"""What fetch refuses before it fetches: files of later stages that a run names and that are not there."""

from pathlib import Path

import pytest

from pairmill.engine import runner
from pairmill.errors import UsageError
from pairmill.line import parameters
from pairmill.line.parameters import Parameters, TrainingParameters
from pairmill.stages.fetch.config import FetchConfig
from pairmill.stages.fetch.core import Fetch

FILES = ("curate_config", "select_config", "mix_config", "prefix_config_path", "train_config")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(("content", "said"), [(None, "does not exist"), (b"a: [", "not valid YAML")])
def test_a_file_of_a_later_stage_is_looked_at_before_anything_is_fetched(
    tmp_path: Path, name: str, content: bytes | None, said: str
) -> None:
    file, root = tmp_path / "settings.yaml", tmp_path / "root"
    if content is not None:
        file.write_bytes(content)
    raw = tmp_path / "raw" / "gsm8k"
    raw.mkdir(parents=True)
    with pytest.raises(UsageError, match=said) as caught:
        runner.run(Fetch(), FetchConfig(root=str(root), raw=str(raw.parent), **{name: file.as_uri()}))
    assert str(file) in str(caught.value)
    assert not root.exists()


def test_the_file_of_a_stage_without_work_and_a_path_of_its_pod_are_left_to_it(tmp_path: Path) -> None:
    # The path is one of the pod that runs the stage; fetch may run in another image.
    absent = FetchConfig(root=str(tmp_path), curate_config="/nowhere/curate.yaml", train_config="train_config.yaml")
    absent.look_at_settings()
    done = FetchConfig(root=str(tmp_path), tokenized="s3://b/t", curate_config=f"{tmp_path.as_uri()}/nothing.yaml")
    done.look_at_settings()
    with pytest.raises(UsageError, match="mix_config"):
        FetchConfig(root=str(tmp_path), tokenized="s3://b/t", mix_config=f"{tmp_path.as_uri()}/no").look_at_settings()


def test_a_pipeline_tells_fetch_the_files_of_all_its_stages() -> None:
    for training, given in ((False, Parameters), (True, TrainingParameters)):
        has = {name for name in FILES if name in given.__dataclass_fields__}
        assert has == {*FILES[:4], *(FILES[4:] if training else ())}
        assert has <= set(parameters.taken("fetch", training=training))
