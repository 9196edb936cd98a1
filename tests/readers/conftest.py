"""Tests that need other trainers' readers beside torch: an environment of its own (make readers-test)."""
