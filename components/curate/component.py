"""Find and remove duplicates, leaks of benchmarks and poor rows."""

from kfp import compiler

from pairmill.kubeflow.component import component
from pairmill.line.stages import EVERY

curate = component(EVERY["curate"])

if __name__ == "__main__":
    compiler.Compiler().compile(curate, __file__.replace(".py", ".yaml"))
