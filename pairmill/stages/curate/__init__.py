"""curate: duplicates, leaks and poor rows, found, shown and removed."""
