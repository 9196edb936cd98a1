//! Byte-level BPE as `tokenizers` 0.22.2 does it: added tokens, NFC, the split of [`split`] or another of [`patterns`],
//! byte symbols, merges by rank.
//!
//! The contract is identity: the same ids for every text, the same vocabulary and merges for every corpus. Speed comes
//! second. Nothing here reads a file, knows Python or holds global state, save a table of character classes.

#![deny(unsafe_code)]

pub mod added;
mod bpe;
pub mod bytes;
mod cache;
mod classes;
pub mod count;
pub mod encoder;
pub mod gather;
pub mod jsonl;
mod key;
mod marks;
pub mod mixture;
pub mod mt19937;
pub mod nfc;
pub mod numbers;
pub mod pack;
pub mod pages;
pub mod patterns;
pub mod philox;
pub mod prefixlm;
pub mod rows;
pub mod sample;
mod scan;
pub mod simd;
pub mod split;
mod tables;
pub mod tokenizer;
pub mod train;
pub mod windows;
