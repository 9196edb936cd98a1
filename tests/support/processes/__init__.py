"""Programs as processes, the instants at which they are killed, a browser, and a Slurm."""
