"""Rules: which tasks a line of a file is about, and how much of them is taken."""
