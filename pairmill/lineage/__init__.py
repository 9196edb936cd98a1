"""The line from clean to sample, told from the manifests of its stages."""
