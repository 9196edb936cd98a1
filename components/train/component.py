"""Train a net on a sampled folder, on flat token files, or on a data set of the Hub."""

from kfp import compiler

from pairmill.kubeflow.component import component
from pairmill.line.stages import EVERY

train = component(EVERY["train"])

if __name__ == "__main__":
    compiler.Compiler().compile(train, __file__.replace(".py", ".yaml"))
