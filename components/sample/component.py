"""Draw stratified epochs of a tokenized folder into a folder that a trainer maps."""

from kfp import compiler

from pairmill.kubeflow.component import component
from pairmill.line.stages import EVERY

sample = component(EVERY["sample"])

if __name__ == "__main__":
    compiler.Compiler().compile(sample, __file__.replace(".py", ".yaml"))
