"""train: a net is trained on what the line made; exact, resumable to the bit on a CPU, and small enough to read."""
