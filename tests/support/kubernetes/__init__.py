"""Stand-ins for Kubernetes and Kubeflow Pipelines, and what tests do to a real cluster."""
