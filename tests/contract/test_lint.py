"""The lint of compiled pipelines: each trap, compiled by the real SDK, is found alone; the pipeline has none."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional

import pytest
from kfp import compiler, dsl, kubernetes

from pairmill.kubeflow import lint
from tests.support.helpers import REPOSITORY, environment
from tests.support.kubernetes.emulator import load
from tests.support.processes import nursery

IMAGE = "registry.invalid/any@sha256:" + "0" * 64
EI = dsl.PIPELINE_TASK_EXECUTOR_INPUT_PLACEHOLDER

CASES: dict[str, tuple[Callable[[], Any], str, str]] = {}

COMPILED = sorted((REPOSITORY / "pipelines/compiled").glob("*.yaml"))


def case(rule: str, got: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """A pipeline that breaks this rule once, and what is said of it."""

    def add(function: Callable[[], Any]) -> Callable[[], Any]:
        CASES[function.__name__.replace("_", "-")] = (function, rule, got)
        return function

    return add


def spec(*arguments: Any) -> dsl.ContainerSpec:
    return dsl.ContainerSpec(image=IMAGE, command=["python", "-m", "any"], args=[*arguments, EI])


def settled(task: Any, **instead: Any) -> Any:
    """A task with everything that a task should have; None takes a part away, and a value replaces it."""
    given = {"name": "Any", "retry": {"num_retries": 2}, "timeout": 1200, "memory": "1Gi", "scratch": "1Gi", **instead}
    task.set_caching_options(given.get("cached", False))
    if given["name"]:
        task.set_display_name(given["name"])
    if given["retry"]:
        task.set_retry(backoff_duration="30s", **given["retry"])
    if given["timeout"]:
        kubernetes.set_timeout(task, given["timeout"])
    if given["memory"]:
        task.set_memory_limit(given["memory"])
    if given["scratch"]:
        kubernetes.empty_dir_mount(task, "scratch", "/scratch", size_limit=given["scratch"])
        task.set_env_variable("TMPDIR", "/scratch/tmp")
    return task


def pipeline(function: Callable[..., Any]) -> Any:
    return dsl.pipeline(name="any", display_name="Any", description="Any.")(function)


@dsl.container_component
def work(index: int = 0):
    """Work.

    Args:
        index: of the worker.
    """
    return spec()


@dsl.container_component
def read(uri: str):
    """Read.

    Args:
        uri: of the data.
    """
    return spec()


@dsl.container_component
def make(manifest: dsl.Output[dsl.Dataset], data: dsl.Output[dsl.Dataset], output: dsl.OutputPath(str)):
    """Make."""
    return spec()


@dsl.container_component
def use(manifest: dsl.Input[dsl.Dataset], uri: str = ""):
    """Use.

    Args:
        manifest: of the data.
        uri: of the data.
    """
    return spec()


def of(component: Any, arguments: dict[str, Any] | None = None, **instead: Any) -> Any:
    """A pipeline of one task."""

    @pipeline
    def one():
        settled(component(**(arguments or {})), **instead)

    return one


def make_sound() -> Any:
    """Compile a pipeline without findings. kfp looks through every module for each task, so not at import."""

    @pipeline
    def sound(uri: str = ""):
        """Sound.

        Args:
            uri: of the data.
        """
        made = settled(make())
        with dsl.ParallelFor([0, 1, 2], parallelism=2) as index:
            each = settled(work(index=index))
        settled(use(manifest=made.outputs["manifest"], uri=made.outputs["output"])).after(each)
        settled(read(uri=uri))
        with dsl.If(uri == "x"):
            settled(read(uri="a constant"))

    return sound


# --- inputs and placeholders ----------------------------------------------------------------------------------------


@case("command-argument", "{{$.inputs.parameters['text']}}")
def default_in_placeholder():
    @dsl.container_component
    def component(text: str = "a default"):
        """Args: text: any."""
        return spec("--text", text)

    return of(described(component))


def described(component: Any) -> Any:
    """A component whose inputs have a description, whatever they are."""
    for kind in (component.component_spec.inputs or {}).values():
        kind.description = "any"
    return component


@case("command-argument", "{{$.outputs.parameters['out'].output_file}}|")
def absent_input_in_text():
    @dsl.container_component
    def component(out: dsl.OutputPath(str), text: Optional[str] = None):  # noqa: UP045  kfp knows no other form
        return spec(f"{out}|{text}")

    return of(described(component))


@case("command-argument", "{{$.inputs.artifacts['manifest'].path}}")
def absent_artifact_in_placeholder():
    @dsl.container_component
    def component(manifest: Optional[dsl.Input[dsl.Dataset]] = None):  # noqa: UP045
        return spec("--manifest", manifest.path)

    return of(described(component))


@case("command-argument", "{{$.inputs.parameters['nope']}}")
def unknown_input():
    @dsl.container_component
    def component():
        return spec("{{$.inputs.parameters['nope']}}")

    return of(component)


@case("command-argument", "{{$.pipeline_root}}")
def unresolved_placeholder():
    @dsl.container_component
    def component():
        return spec("--root", dsl.PIPELINE_ROOT_PLACEHOLDER)

    return of(component)


@case("command-argument", '{"Concat"')
def concat_placeholder():
    @dsl.container_component
    def component(text: str):
        return spec(dsl.ConcatPlaceholder(["--text=", text]))

    return of(described(component), {"text": "x"})


@case("command-argument", '{"IfPresent"')
def if_present_on_artifact():
    @dsl.container_component
    def component(manifest: Optional[dsl.Input[dsl.Dataset]] = None):  # noqa: UP045
        return spec(dsl.IfPresentPlaceholder(input_name="manifest", then=["--given"], else_=["--absent"]))

    return of(described(component))


@case("command-argument", '{"IfPresent"')
def if_present_on_default():
    @dsl.container_component
    def component(text: str = "a default"):
        return spec(dsl.IfPresentPlaceholder(input_name="text", then=["--given"]))

    return of(described(component))


@case("value", "uri: run-{{$.pipeline_job_uuid}}")
def special_placeholder_in_text():
    return of(read, {"uri": f"run-{dsl.PIPELINE_JOB_ID_PLACEHOLDER}"})


@case("value", "uri: {{$.inputs.parameters['pipelinechannel--parts']}}/data")
def text_built_in_pipeline():
    @pipeline
    def one(parts: list = ["a"]):  # noqa: B006
        """One.

        Args:
            parts: any.
        """
        settled(read(uri=f"{parts}/data"))

    return one


@case("value", "uri: {{workflow.name}} $(HOME)")
def expanded_text():
    return of(read, {"uri": "{{workflow.name}} $(HOME)"})


@case("value", "uri: yyy")
def long_text():
    return of(read, {"uri": "y" * 4097})


@case("value", "index: 900719925474099")
def large_integer():
    return of(work, {"index": 2**53 + 1})


# --- artifacts ------------------------------------------------------------------------------------------------------


@case("artifact", "manifest is given twice")
def artifact_twice():
    @dsl.container_component
    def component(manifest: dsl.Input[dsl.Dataset], old_manifest: dsl.Input[dsl.Dataset]):
        return spec()

    described(component)

    @pipeline
    def one():
        made = settled(make()).outputs["manifest"]
        settled(component(manifest=made, old_manifest=made))

    return one


@case("artifact", "data")
def bulk_artifact():
    @dsl.container_component
    def component(data: dsl.Input[dsl.Dataset]):
        return spec()

    described(component)

    @pipeline
    def one():
        settled(component(data=settled(make()).outputs["data"]))

    return one


@case("artifact", "dsl.importer")
def imported_artifact():
    @pipeline
    def one():
        found = dsl.importer(artifact_uri="gs://bucket/manifest", artifact_class=dsl.Dataset, reimport=False)
        settled(use(manifest=found.output))

    return one


# --- loops and order ------------------------------------------------------------------------------------------------


@case("loop", "no parallelism")
def loop_without_limit():
    @pipeline
    def one():
        with dsl.ParallelFor([0, 1]) as index:
            settled(work(index=index))

    return one


@case("loop", "more than 20 iterations")
def loop_too_long():
    @pipeline
    def one():
        with dsl.ParallelFor(list(range(21)), parallelism=8) as index:
            settled(work(index=index))

    return one


@case("loop", "is inside root.for-loop-")
def loop_in_loop():
    @pipeline
    def one():
        with dsl.ParallelFor([0, 1], parallelism=2), dsl.ParallelFor([0, 1], parallelism=2) as index:
            settled(work(index=index))

    return one


@case("runs-after-failure", "dsl.ExitHandler")
def runs_after_failure():
    @pipeline
    def one():
        with dsl.ExitHandler(settled(work())):
            settled(work())

    return one


# --- pods -----------------------------------------------------------------------------------------------------------


@case("placement", "an image without digest")
def image_by_tag():
    @dsl.container_component
    def component():
        return dsl.ContainerSpec(image="registry.example/any:v1", command=["any"], args=[EI])

    return of(component)


@case("placement", "no retries")
def no_retry():
    return of(work, retry=None)


@case("placement", "backoff_max_duration below")
def retry_max_duration():
    return of(work, retry={"num_retries": 2, "backoff_max_duration": "7200s"}, timeout=3600)


@case("placement", "no timeout")
def no_timeout():
    return of(work, timeout=None)


@case("placement", "no memory limit")
def no_memory_limit():
    return of(work, memory=None)


@case("placement", "no volume at TMPDIR")
def no_scratch():
    return of(work, scratch=None)


@case("placement", "a volume without size limit")
def volume_without_limit():
    @pipeline
    def one():
        kubernetes.empty_dir_mount(settled(work()), "shm", "/dev/shm", medium="Memory")

    return one


@case("placement", "a secret in a variable")
def secret_in_env():
    @pipeline
    def one():
        settled(work()).set_env_variable("HF_TOKEN", "hf_not_so_secret")

    return one


# --- caching --------------------------------------------------------------------------------------------------------


@case("cached", "caching is on")
def cached_task():
    @pipeline
    def one():
        settled(work(), cached=True).set_env_variable("MODE", "fast")

    return one


# --- the form -------------------------------------------------------------------------------------------------------


# --- tests ----------------------------------------------------------------------------------------------------------


def documents(function: Any, folder: Path) -> list[dict[str, Any]]:
    compiler.Compiler().compile(function, str(folder / "made.yaml"))
    return load(folder / "made.yaml")


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_trap_is_found_and_nothing_else(name: str, tmp_path: Path) -> None:
    function, rule, got = CASES[name]
    found = lint.lint(documents(function(), tmp_path))
    assert {one.rule for one in found} == {rule}, [str(one) for one in found]
    assert found[0].got.startswith(got)


def test_every_rule_has_a_trap() -> None:
    assert {rule for _, rule, _ in CASES.values()} == set(lint.RULES)


def test_a_sound_pipeline_has_no_findings(tmp_path: Path) -> None:
    assert [str(one) for one in lint.lint(documents(make_sound(), tmp_path))] == []


def test_the_compiled_files_have_no_findings() -> None:
    assert COMPILED
    found = {path.name: lint.run(lint.LintConfig(file=str(path))) for path in COMPILED}
    assert {name: [str(one) for one in some] for name, some in found.items() if some} == {}


def test_the_program_lists_findings_and_exits_3(tmp_path: Path) -> None:
    documents(CASES["no-retry"][0](), tmp_path)

    def program(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return nursery.shared(nursery.PIPELINES).run("pairmill", ["lint", *arguments], environment())

    file = f"file={tmp_path / 'made.yaml'}"
    done = program(file)
    assert done.returncode == 3
    assert done.stdout.startswith("root.work: placement: no retries. ")
    assert "1 finding" in done.stderr
    assert program(file, "allow=placement").returncode == 0
    assert program(file, "allow=no-such-rule").returncode == 2
    (tmp_path / "other.yaml").write_text("a: b\n")
    done = program(f"file={tmp_path / 'other.yaml'}")
    assert done.returncode == 3
    assert "not a compiled pipeline" in done.stderr
