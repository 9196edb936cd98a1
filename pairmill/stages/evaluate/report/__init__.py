"""The page of a finished evaluation."""
