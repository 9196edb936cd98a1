"""The pipeline from raw data to sampled epochs, as Kubeflow sees it."""

from pairmill.kubeflow.pretraining import pretraining as pretraining
