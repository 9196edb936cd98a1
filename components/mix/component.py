"""Plan how many response tokens of each source the training has, epoch by epoch."""

from kfp import compiler

from pairmill.kubeflow.component import component
from pairmill.line.stages import EVERY

mix = component(EVERY["mix"])

if __name__ == "__main__":
    compiler.Compiler().compile(mix, __file__.replace(".py", ".yaml"))
