"""Compiles the pipeline: ``python -m pipelines.compile [image=<name>@sha256:…] [output=<file>]``.

``pipelines/compiled/pretraining.yaml`` is made without ``image=`` and is diffed in CI.
"""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pairmill import cli
from pairmill.errors import UsageError
from pairmill.stage import option

COMPILED = "pipelines/compiled/pretraining.yaml"


@dataclass(kw_only=True)
class CompileConfig:
    """Compile the pipeline to the YAML that Kubeflow takes."""

    image: str = option("", help="image of every stage, by digest; empty = a placeholder that cannot be pulled")
    output: str = option(COMPILED, help="file to write")
    allow_tag: bool = option(False, help="accept an image without digest, for a cluster that has no registry")

    def __post_init__(self) -> None:
        if self.image and "@sha256:" not in self.image and not self.allow_tag:
            raise UsageError(
                "is not named by digest",
                where="image",
                got=self.image,
                expected="name@sha256:…",
                hint="a tag that moves gives a node another program than the one that was tested (or allow_tag=true)",
            )


def run(config: CompileConfig) -> Path:
    """Compile; returns the file."""
    from pairmill import kfp

    if config.image:
        # kfp builds a component's container while its module is imported.
        os.environ[kfp.IMAGE_VARIABLE] = config.image
    from kfp import compiler

    from pipelines.pretraining import pretraining

    target = Path(config.output)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "pipeline.yaml"
        compiler.Compiler().compile(pretraining, str(made))
        target.write_bytes(made.read_bytes())
    return target


def main() -> int:
    """Command line."""
    arguments = sys.argv[1:]

    def work() -> None:
        sys.stdout.write(f"{run(cli.build(CompileConfig, cli.split(arguments)))}\n")

    return cli.program("pipelines.compile", "compile", CompileConfig, arguments, work)


if __name__ == "__main__":
    raise SystemExit(main())
