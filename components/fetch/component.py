"""Bring raw data to the project, at locked revisions, with digests and licences."""

from kfp import compiler

from pairmill.kubeflow.component import component
from pairmill.line.stages import EVERY

fetch = component(EVERY["fetch"])

if __name__ == "__main__":
    compiler.Compiler().compile(fetch, __file__.replace(".py", ".yaml"))
