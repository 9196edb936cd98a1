"""evaluate: prompts, texts, scores; each step cached, each answer kept, each figure with its interval."""
