"""What is done between the steps of a run, in this order: watch, recover, evaluate, sample, save."""
