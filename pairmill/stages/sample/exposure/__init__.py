"""What a model has seen: how often each row was in the epochs that it read, over all plans of its training."""
