"""Scoring: what an output says, and whether it is right. Nothing here reads files, and nothing needs torch."""
