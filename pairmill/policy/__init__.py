"""Policy lists: which sources, files and tasks may be trained on, with reason and date (docs/policy.md)."""
