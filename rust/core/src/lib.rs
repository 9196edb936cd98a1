//! The hot loops of pairmill, one module for each program that runs them: [`bpe`] for train_tokenizer and tokenize,
//! [`curate`] for curate, [`sample`] for `sample`, [`loader`] for the training-side loader.
//!
//! Nothing here knows Python, and only [`sample`], [`read`] and [`descriptor`] read and write files. The only global
//! state is a table of character classes and the hook of [`guard`].

#![deny(unsafe_code)]

pub mod bpe;
pub mod curate;
pub mod descriptor;
pub mod digest;
pub mod guard;
pub mod jsonl;
pub mod loader;
pub mod pages;
pub mod plain;
pub mod plain_json;
pub mod read;
pub mod sample;
pub mod simd;
