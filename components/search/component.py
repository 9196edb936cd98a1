"""Draw mixtures for small trainings; fit a law to what they lose, and find the mixture that loses least."""

from kfp import compiler

from pairmill.kubeflow.component import component
from pairmill.line.stages import EVERY

search = component(EVERY["search"])

if __name__ == "__main__":
    compiler.Compiler().compile(search, __file__.replace(".py", ".yaml"))
