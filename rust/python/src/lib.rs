//! `pairmill._native`: the Python border of `pairmill-core`.
//!
//! Arrow arrays come in through the PyCapsule interface, NumPy and Arrow arrays go out; rows never cross one by one.
//! Work runs detached from the interpreter and looks for Ctrl-C. Only `arrow` may be unsafe.

#![deny(unsafe_code)]

mod arrow;
mod draw;
mod encoder;
mod errors;
mod guard;
mod loader;
mod mixture;
mod mt19937;
mod pattern;
mod poll;
mod rows;
mod sample;
mod tokenizer;
mod train;
mod windows;

/// Byte-level BPE, native: encoding, counting, training.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use super::arrow::ArrowArray;
    #[pymodule_export]
    use super::draw::{Philox, gather, gather_file};
    #[pymodule_export]
    use super::encoder::{Encoder, simd_levels};
    #[pymodule_export]
    use super::errors::{NoCausalError, RowError, RowPanic, UnknownTagError};
    #[pymodule_export]
    use super::loader::{Numbers, RowIndex, fill_prefixlm, pack_rows};
    #[pymodule_export]
    use super::mixture::{mixture_samples, mixture_sources};
    #[pymodule_export]
    use super::mt19937::Mt19937;
    #[pymodule_export]
    use super::pattern::Pattern;
    #[pymodule_export]
    use super::rows::{Layout, json_rows};
    #[pymodule_export]
    use super::sample::data_io_document_sample;
    #[pymodule_export]
    use super::tokenizer::{tokenizer_encoder, tokenizer_settings};
    #[pymodule_export]
    use super::train::{Trainer, WordCounter, train_bpe};
    #[pymodule_export]
    use super::windows::TokenArrays;

    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
