//! `pairmill._native`: the Python border of `pairmill-core`, a module for each program as there: [`bpe`] for
//! train_tokenizer and tokenize, [`sample`] for `sample`, [`loader`] for the loader, [`text`] for what reads JSON,
//! [`digest`] for all that write.
//!
//! Arrow arrays come in through the PyCapsule interface; NumPy and Arrow arrays go out. Rows never cross one by one.
//! Work runs detached from the interpreter and checks for Ctrl-C. Only `arrow` may be unsafe.

#![deny(unsafe_code)]

mod arrow;
mod bpe;
mod carry;
mod curate;
mod digest;
mod errors;
mod loader;
mod plain;
mod planner;
mod poll;
mod sample;
mod summaries;
mod text;

/// The hot loops of pairmill, compiled.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use super::arrow::ArrowArray;
    #[pymodule_export]
    use super::bpe::encoder::{Encoder, simd_levels, tokenizer_encoder, tokenizer_settings};
    #[pymodule_export]
    use super::bpe::rows::Layout;
    #[pymodule_export]
    use super::bpe::train::{Trainer, WordCounter, data_io_document_sample};
    #[pymodule_export]
    use super::carry::{
        epochs::{EpochArrays, RowTable},
        gather_spans,
        tokens::{TaskError, TokenFile},
    };
    #[pymodule_export]
    use super::curate::decontaminate::{LeakIndex, LeakIndexBuilder};
    #[pymodule_export]
    use super::curate::features::{
        curate_bucket_counts, curate_bucket_terms, curate_letters, curate_logit, curate_logit_train,
    };
    #[pymodule_export]
    use super::curate::keys::{curate_exact_keys, curate_forms, curate_unicode};
    #[pymodule_export]
    use super::curate::metrics::{curate_metrics, curate_pair_metrics};
    #[pymodule_export]
    use super::curate::near::{
        NearSettings, curate_near_buckets, curate_near_refine, curate_near_resolve, curate_near_rules, curate_sketches,
        curate_verify,
    };
    #[pymodule_export]
    use super::curate::pii::{curate_pii, curate_redact};
    #[pymodule_export]
    use super::curate::records::{curate_near_deal, curate_near_segments};
    #[pymodule_export]
    use super::curate::select::{select_count, select_draws, select_ln, select_score, select_tokens};
    #[pymodule_export]
    use super::curate::union::{
        curate_near_distinct, curate_near_find, curate_near_join, curate_near_mark, curate_near_places,
    };
    #[pymodule_export]
    use super::digest::{Blake3, blake3_files, blake3_joined, copy_digested};
    #[pymodule_export]
    use super::errors::{NoCausalError, RowError, RowPanic, UnknownTagError};
    #[pymodule_export]
    use super::loader::files::TokenFiles;
    #[pymodule_export]
    use super::loader::mixture::{mixture_samples, mixture_sources};
    #[pymodule_export]
    use super::loader::mt19937::Mt19937;
    #[pymodule_export]
    use super::loader::rows::{Numbers, RowIndex, RowRun, fill_prefixlm, pack_rows};
    #[pymodule_export]
    use super::loader::walk::{BatchWalk, RowLengths, find_values};
    #[pymodule_export]
    use super::loader::windows::TokenArrays;
    #[pymodule_export]
    use super::plain::{MadeRows, PlainBatch, RowForm, json_lines};
    #[pymodule_export]
    use super::planner::{Planner, add_passes, added_places};
    #[pymodule_export]
    use super::sample::Philox;
    #[pymodule_export]
    use super::summaries::{sample_summaries, sample_summary};
    #[pymodule_export]
    use super::text::{Pattern, json_rows};

    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
