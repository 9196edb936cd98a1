"""Raw data in the real formats of the sources, every text made up from word lists and a seed."""
