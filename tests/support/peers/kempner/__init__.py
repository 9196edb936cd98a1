"""Batches bit for bit those of KempnerForge's data layer (commit 5666d0d), its defects included.

It loses, repeats or guesses what the original does (resume with another world size, phase switches in mid-epoch,
streams, raw files' dtypes, file tails); `pairmill.loader` itself does not. Errors here are the original's: ValueError,
IndexError and so on.
"""
