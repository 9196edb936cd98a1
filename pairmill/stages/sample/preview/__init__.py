"""What rules would take of a tokenized folder, before anything is drawn or written."""
