"""mix: how many response tokens each source gives, counted and planned."""
