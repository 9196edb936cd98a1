"""Turn raw instruction data sets into rows {condition, instruction, response}."""

from kfp import compiler

from pairmill.kubeflow.component import component
from pairmill.line.stages import EVERY

clean = component(EVERY["clean"])

if __name__ == "__main__":
    compiler.Compiler().compile(clean, __file__.replace(".py", ".yaml"))
