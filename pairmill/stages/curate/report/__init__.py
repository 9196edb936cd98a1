"""The report of curate."""
