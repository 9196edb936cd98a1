"""sample: which rows each epoch has; carried out on GPU nodes."""
