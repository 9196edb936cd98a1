"""compare: two plans or more, the same net and seeds, and a verdict with the noise known."""
