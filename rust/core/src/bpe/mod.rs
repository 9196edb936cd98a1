//! Byte-level BPE for train_tokenizer and tokenize: documents in, counted pieces, a vocabulary or token ids out.
//!
//! It does what `tokenizers` 0.22.2 does, id for id: added tokens, NFC, the split into pieces, byte symbols, merges by
//! rank. Speed comes second.

pub mod added;
pub mod alphabet;
mod cache;
pub(crate) mod classes;
pub mod count;
pub mod documents;
pub mod encoder;
mod key;
mod merges;
pub mod nfc;
pub mod rows;
mod scan;
pub mod split;
pub mod tokenizer_json;
pub mod train;
