"""A run: :mod:`loop` reads from its newest checkpoint to its end; what is done between steps are callbacks."""
