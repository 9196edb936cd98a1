"""Raw files: which are read, how they are written, and their records one at a time."""
