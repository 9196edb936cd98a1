"""search: the mixture of sources with the lowest held-out loss, by a law fitted to small trainings."""
