"""Other projects' loaders, reproduced bit for bit for parity."""
