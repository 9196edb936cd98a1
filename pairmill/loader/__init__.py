"""From arrays of tokens to batches of a training step."""
