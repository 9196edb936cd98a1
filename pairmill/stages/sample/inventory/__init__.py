"""What is in a sample, by source, group, language or licence; its sums are those of the plan, to the token."""
