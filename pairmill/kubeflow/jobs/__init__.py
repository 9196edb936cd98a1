"""Stages that are shared out by an Indexed Job of Kubernetes."""
