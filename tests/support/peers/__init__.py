"""Loaders of other projects, reproduced bit for bit, defects included: ours is compared with them."""
