"""Encode rows into per-task token arrays."""

from kfp import compiler

from pairmill.kubeflow.component import component
from pairmill.line.stages import EVERY

tokenize = component(EVERY["tokenize"])

if __name__ == "__main__":
    compiler.Compiler().compile(tokenize, __file__.replace(".py", ".yaml"))
