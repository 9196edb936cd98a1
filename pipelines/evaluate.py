"""The pipeline that evaluates the checkpoints of a training, as Kubeflow sees it."""

from pairmill.kubeflow import evaluate
from pairmill.kubeflow.placement import Placement

evaluation = evaluate.build(Placement())
