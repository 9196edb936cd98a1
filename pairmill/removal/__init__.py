"""`pairmill remove`: single records are taken out of all later runs, with a statement that can be checked
(docs/removing.md)."""
