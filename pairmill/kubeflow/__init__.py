"""The stages as one pipeline: on this machine, or compiled for Kubeflow."""
