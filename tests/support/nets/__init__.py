"""Tiny nets, the tasks that they learn, and the folders of their runs."""
