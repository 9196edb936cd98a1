"""Parity mode: batches bit for bit those of KempnerForge's data layer (commit 5666d0d), its defects included.

It is for who must go on with a run begun there, or compare with one. What it loses, repeats or guesses (resume with
another world size, phase switches in mid-epoch, streams, raw files' dtypes, file tails) `pairmill.loader` itself does
otherwise; nothing of it is changed by this mode, and errors here are the original's: ValueError, IndexError and so on.
"""
