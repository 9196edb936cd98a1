"""The data sets that pairmill knows, and what reads and parses them; used by fetch and clean."""
