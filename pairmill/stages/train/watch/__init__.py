"""What a person sees of a run while it runs: metrics.jsonl, TensorBoard, W&B and progress."""
