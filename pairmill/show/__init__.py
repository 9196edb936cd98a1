"""``pairmill show``: rows, tokens, samples and batches on a terminal, as a model sees them."""
