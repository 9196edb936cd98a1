"""audit: a sample of the rows that a plan trains on, checked, counted by the form of their answers, and judged."""
