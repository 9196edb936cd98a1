"""clean: raw records become rows."""
