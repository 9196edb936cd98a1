"""tokenize: rows become token arrays."""
