//! What train_tokenizer and tokenize call: documents to counts, vocabularies, token ids and spans.

pub(crate) mod encoder;
pub(crate) mod rows;
pub(crate) mod train;
