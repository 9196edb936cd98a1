"""Train a byte-level tokenizer on rows."""

from kfp import compiler

from pairmill.kubeflow.component import component
from pairmill.line.stages import EVERY

train_tokenizer = component(EVERY["train_tokenizer"])

if __name__ == "__main__":
    compiler.Compiler().compile(train_tokenizer, __file__.replace(".py", ".yaml"))
