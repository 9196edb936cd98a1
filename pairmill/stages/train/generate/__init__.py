"""Texts from a trained net: prompts, a cache of keys and values, sampling.

Nets know nothing of it: a cache is one more way in which queries see keys (`Sees`).
"""
