"""Mixtures: budgets of response tokens shared out over sources, as a plan that the sampler executes."""
