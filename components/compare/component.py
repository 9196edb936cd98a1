"""Compare plans of sample: what differs between them, and which one trains the better net."""

from kfp import compiler

from pairmill.kubeflow.component import component
from pairmill.line.stages import EVERY

compare = component(EVERY["compare"])

if __name__ == "__main__":
    compiler.Compiler().compile(compare, __file__.replace(".py", ".yaml"))
