"""Choose the rows worth training on, by target texts, by attributes, or by both."""

from kfp import compiler

from pairmill.kubeflow.component import component
from pairmill.line.stages import EVERY

select = component(EVERY["select"])

if __name__ == "__main__":
    compiler.Compiler().compile(select, __file__.replace(".py", ".yaml"))
