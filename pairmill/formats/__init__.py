"""The files that stages read and write."""
