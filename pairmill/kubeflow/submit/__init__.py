"""Submission of the pipeline to a Kubeflow Pipelines server."""
