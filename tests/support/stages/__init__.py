"""Stages run in this process over small input, and stages made for tests."""
