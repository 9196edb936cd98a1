//! Encoding.

use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::Array;
use numpy::PyArray1;
use pairmill_core::bpe::encoder::{Cache, Encoder as Core};
use pairmill_core::bpe::split::Pattern;
use pairmill_core::bpe::tokenizer_json::{encoder, settings};
use pairmill_core::pages::vec_with_capacity;
use pairmill_core::simd::Level;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyMapping;

use crate::arrow::{text_bytes, texts};
use crate::errors::value_error;
use crate::poll::watched;

/// What `encode` returns: ids, offsets, dropped bytes.
type Encoded<'py> = (Bound<'py, PyArray1<u32>>, Bound<'py, PyArray1<i64>>, u64);

/// A byte-level BPE encoder.
#[pyclass(frozen, module = "pairmill._native")]
pub(crate) struct Encoder(Arc<Shared>);

/// The encoder, and word caches not in use; each call takes one, so that threads never share.
pub(crate) struct Shared {
    core: Core,
    caches: Mutex<Vec<Cache>>,
}

impl Shared {
    /// Lend a cache to `work`. A cache is not used again after a panic.
    pub(crate) fn with_cache<T>(&self, work: impl FnOnce(&Core, &mut Cache) -> T) -> T {
        let mut cache = self.caches.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        let done = work(&self.core, &mut cache);
        self.caches.lock().unwrap_or_else(PoisonError::into_inner).push(cache);
        done
    }
}

/// The levels that this processor has, the fastest last.
#[pyfunction]
pub(crate) fn simd_levels() -> Vec<&'static str> {
    Level::available().into_iter().map(Level::name).collect()
}

/// The level of this name; without one, the fastest.
pub(crate) fn level(simd: Option<&str>) -> PyResult<Level> {
    let Some(name) = simd else { return Ok(Level::best()) };
    Level::named(name).ok_or_else(|| {
        let known = simd_levels().join(", ");
        PyValueError::new_err(format!("no level {name:?} here; expected one that this processor has: {known}"))
    })
}

impl Encoder {
    pub(crate) fn at_level(core: Core, level: Level) -> Self {
        Self(Arc::new(Shared { core: core.at_level(level), caches: Mutex::default() }))
    }

    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.0)
    }
}

/// A guess at the number of ids of texts of `bytes` bytes: English and mathematics have 3 to 4 bytes a token.
pub(crate) fn expected_ids(bytes: usize) -> usize {
    bytes / 3
}

#[pymethods]
impl Encoder {
    #[new]
    #[pyo3(signature = (vocab, merges, *, simd = None))]
    fn new(vocab: &Bound<'_, PyAny>, merges: Vec<(String, String)>, simd: Option<&str>) -> PyResult<Self> {
        let level = level(simd)?;
        let pairs = match vocab.cast::<PyMapping>() {
            Ok(mapping) => mapping.items()?.into_any(),
            Err(_) => vocab.clone(),
        };
        let mut tokens: Vec<(String, u32)> = Vec::new();
        for pair in pairs.try_iter()? {
            let (token, id): (String, Bound<'_, PyAny>) = pair?.extract()?;
            let id = id.extract().map_err(|_| {
                PyValueError::new_err(format!("token {token:?} has the id {id}; expected an integer of 0 to 2^32 − 2"))
            })?;
            tokens.push((token, id));
        }
        let core = Core::new(tokens, &merges).map_err(value_error)?;
        Ok(Self::at_level(core, level))
    }

    #[getter]
    fn vocab_size(&self) -> usize {
        self.0.core.vocab_size()
    }

    fn token_to_id(&self, token: &str) -> Option<u32> {
        self.0.core.token_to_id(token)
    }

    fn encode<'py>(&self, py: Python<'py>, strings: &Bound<'py, PyAny>) -> PyResult<Encoded<'py>> {
        let shared = self.shared();
        let texts = texts(strings)?;
        let bytes = text_bytes(&texts);
        let (ids, offsets, dropped) = watched(py, texts, bytes, move |texts, progress| {
            let mut ids = vec_with_capacity(expected_ids(bytes));
            let mut offsets = Vec::with_capacity(texts.len() + 1);
            offsets.push(0_i64);
            let dropped = shared.with_cache(|core, cache| {
                let wanted = texts.iter().flatten().enumerate().take_while(|&(row, _)| progress.begin(row));
                wanted
                    .map(|(_, text)| {
                        let dropped = core.encode(text, cache, &mut ids);
                        offsets.push(ids.len() as i64);
                        dropped
                    })
                    .sum()
            });
            (ids, offsets, dropped)
        })?;
        Ok((PyArray1::from_vec(py, ids), PyArray1::from_vec(py, offsets), dropped))
    }
}

/// The JSON of a tokenizer.json without its vocabulary and merges.
#[pyfunction]
pub(crate) fn tokenizer_settings(py: Python<'_>, text: &str) -> PyResult<String> {
    py.detach(|| settings(text)).map_err(value_error)
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
    Ok(Encoder::at_level(core.map_err(value_error)?, level))
}
