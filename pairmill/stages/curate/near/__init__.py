"""Near duplicates: from the sketches of rows to the row that each one repeats."""
