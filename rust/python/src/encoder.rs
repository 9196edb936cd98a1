//! Encoding.

use std::sync::{Mutex, PoisonError};

use numpy::PyArray1;
use pairmill_core::encoder::{Cache, Encoder as Core};
use pairmill_core::pages::vec_with_capacity;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyMapping;

use crate::arrow::Texts;
use crate::poll::Poll;

/// What `encode` returns: ids, offsets, dropped bytes.
type Encoded<'py> = (Bound<'py, PyArray1<u32>>, Bound<'py, PyArray1<i64>>, u64);

/// A byte-level BPE encoder.
#[pyclass(frozen, module = "pairmill._native")]
pub(crate) struct Encoder {
    core: Core,
    /// Word caches not in use; each call takes one, so that threads never share.
    caches: Mutex<Vec<Cache>>,
}

impl Encoder {
    fn take_cache(&self) -> Cache {
        self.caches.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    fn give_back(&self, cache: Cache) {
        self.caches.lock().unwrap_or_else(PoisonError::into_inner).push(cache);
    }
}

#[pymethods]
impl Encoder {
    #[new]
    fn new(vocab: &Bound<'_, PyAny>, merges: Vec<(String, String)>) -> PyResult<Self> {
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
        let core = Core::new(tokens, &merges).map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Self { core, caches: Mutex::default() })
    }

    #[getter]
    fn vocab_size(&self) -> usize {
        self.core.vocab_size()
    }

    fn encode<'py>(&self, py: Python<'py>, strings: &Bound<'py, PyAny>) -> PyResult<Encoded<'py>> {
        let texts = Texts::import(strings)?;
        let (ids, offsets, dropped) = py.detach(|| {
            // English and mathematics have 3 to 4 bytes a token.
            let mut ids = vec_with_capacity(texts.bytes() / 3);
            let mut offsets = Vec::with_capacity(texts.len() + 1);
            offsets.push(0_i64);
            let mut dropped = 0;
            let mut cache = self.take_cache();
            let mut poll = Poll::new();
            for text in texts.iter() {
                dropped += self.core.encode(text, &mut cache, &mut ids);
                offsets.push(ids.len() as i64);
                poll.check()?;
            }
            self.give_back(cache);
            PyResult::Ok((ids, offsets, dropped))
        })?;
        Ok((PyArray1::from_vec(py, ids), PyArray1::from_vec(py, offsets), dropped))
    }
}
