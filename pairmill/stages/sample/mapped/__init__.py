"""Which tokens of a sampled folder are whose: a map from offsets to tasks and sources."""
