"""Rows that hold items of benchmarks."""
