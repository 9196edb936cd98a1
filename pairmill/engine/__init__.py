"""Stages as rounds of shards: planning, running, resuming, and the manifest that accounts for every row."""
