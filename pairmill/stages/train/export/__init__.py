"""A finished run as a folder that stock transformers loads, with its tokenizer and a card."""
