"""pairmill: instruction/response pairs from raw data to token arrays in /dev/shm, as a Kubeflow pipeline."""


def __getattr__(name: str) -> str:
    """Return ``__version__``; it is read when asked for, because that takes a tenth of a start."""
    if name == "__version__":
        import importlib.metadata

        return importlib.metadata.version("pairmill")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
