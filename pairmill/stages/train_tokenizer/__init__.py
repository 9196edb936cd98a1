"""train_tokenizer: a byte-level tokenizer is learned from rows."""
