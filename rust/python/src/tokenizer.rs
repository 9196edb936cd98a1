//! `tokenizer.json`.

use pairmill_core::patterns::Pattern;
use pairmill_core::tokenizer::{FileError, encoder, settings};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::encoder::{Encoder, level};

fn file_error(error: &FileError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// The JSON of a tokenizer.json without its vocabulary and merges.
#[pyfunction]
pub(crate) fn tokenizer_settings(py: Python<'_>, text: &str) -> PyResult<String> {
    py.detach(|| settings(text)).map_err(|error| file_error(&error))
}

/// The encoder of a tokenizer.json.
#[pyfunction]
#[pyo3(signature = (text, *, pattern, normalize, ignore_merges, simd = None))]
pub(crate) fn tokenizer_encoder(
    py: Python<'_>,
    text: &str,
    pattern: &str,
    normalize: bool,
    ignore_merges: bool,
    simd: Option<&str>,
) -> PyResult<Encoder> {
    let level = level(simd)?;
    let pattern = match pattern {
        "qwen2" => Pattern::Qwen2,
        "llama3" => Pattern::Llama3,
        "gpt2" => Pattern::Gpt2,
        other => {
            let message = format!("no pattern {other:?}; expected \"qwen2\", \"llama3\" or \"gpt2\"");
            return Err(PyValueError::new_err(message));
        }
    };
    let core = py.detach(|| encoder(text, pattern, normalize, ignore_merges));
    Ok(Encoder::at_level(core.map_err(|error| file_error(&error))?, level))
}
