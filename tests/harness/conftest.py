"""Tests that need lm-evaluation-harness beside torch: an environment of its own (make harness-test)."""
