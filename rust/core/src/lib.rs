//! Byte-level BPE as `tokenizers` 0.22.2 does it for one configuration: NFC, the split of [`split`], byte symbols,
//! merges by rank.
//!
//! The contract is identity: the same ids for every text, the same vocabulary and merges for every corpus. Speed comes
//! second. Nothing here reads a file, knows Python or holds global state, save a table of character classes.

#![forbid(unsafe_code)]

mod bpe;
pub mod bytes;
mod cache;
mod classes;
pub mod count;
pub mod encoder;
mod key;
pub mod nfc;
pub mod sample;
pub mod split;
mod tables;
pub mod train;
