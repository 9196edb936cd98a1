"""Folders of rows, tokens and results, as the stages or other programs write them."""
