"""Token by token: prompts, the cache of keys and values, the engine."""
