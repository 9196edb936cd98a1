"""Ask a trained model the questions of benchmarks, and measure its loss on held-out rows."""

from kfp import compiler

from pairmill.kubeflow.component import component
from pairmill.line.stages import EVERY

evaluate = component(EVERY["evaluate"])

if __name__ == "__main__":
    compiler.Compiler().compile(evaluate, __file__.replace(".py", ".yaml"))
