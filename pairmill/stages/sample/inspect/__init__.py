"""What training on a sampled folder will look like, before any GPU is rented."""
