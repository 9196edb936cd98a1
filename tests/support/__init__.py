"""What several test modules need; nothing here is a test."""
