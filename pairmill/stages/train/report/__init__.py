"""The report of a finished run, and the numbers that Kubeflow compares."""
