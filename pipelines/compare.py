"""The pipeline that compares plans of sample, as Kubeflow sees it."""

from pairmill.kubeflow import compare
from pairmill.kubeflow.placement import Placement

comparison = compare.build(Placement())
