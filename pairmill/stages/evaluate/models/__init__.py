"""What answers questions: a run of train, an exported folder, or a server."""
