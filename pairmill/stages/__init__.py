"""The stages of the pipeline."""
