"""The report of select."""
