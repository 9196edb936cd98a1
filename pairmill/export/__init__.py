"""``pairmill export``: a finished result in the form that other trainers read (docs/export.md)."""
