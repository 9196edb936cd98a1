"""pairmill: instruction/response pairs from raw data to token arrays in /dev/shm, as a Kubeflow pipeline."""
