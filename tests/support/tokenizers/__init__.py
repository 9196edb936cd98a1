"""Tokenizers made here, texts that break them, and the comparison with the tokenizers wheel."""
