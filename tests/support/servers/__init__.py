"""Servers on loopback in place of those of the internet."""
