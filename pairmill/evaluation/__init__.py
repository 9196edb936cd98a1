"""What an evaluation asks: settings, benchmarks with their questions and scores, and where their data are."""
