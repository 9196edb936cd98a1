//! Counting and training.

use std::fmt::Display;

use arrow_array::{Array, LargeBinaryArray};
use arrow_data::ArrayData;
use arrow_schema::DataType;
use numpy::{PyArray1, PyArrayMethods};
use pairmill_core::bpe::count::{WordCounter as Core, Words, truncate as first};
use pairmill_core::bpe::train::{Options, Trained, Trainer as CoreTrainer};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};

use crate::arrow::{ArrowArray, counted, texts};
use crate::errors::value_error;
use crate::poll::Poll;

/// Have `add` take words with their counts, and look for signals meanwhile.
fn add_words<E: Display>(
    py: Python<'_>,
    words: &Bound<'_, PyAny>,
    counts: &Bound<'_, PyAny>,
    mut add: impl FnMut(&[u8], i64) -> Result<(), E> + Send,
) -> PyResult<()> {
    let (words, counts) = counted(words, counts)?;
    py.detach(|| {
        let mut poll = Poll::new();
        words.iter().flatten().zip(counts).try_for_each(|(word, count)| {
            add(word, count).map_err(value_error)?;
            poll.check()
        })
    })
}

/// Counts of distinct pieces.
#[pyclass(module = "pairmill._native")]
pub(crate) struct WordCounter(Core);

#[pymethods]
impl WordCounter {
    #[new]
    fn new() -> Self {
        Self(Core::default())
    }

    #[pyo3(signature = (strings, truncate, chosen = None))]
    fn add(
        &mut self,
        py: Python<'_>,
        strings: &Bound<'_, PyAny>,
        truncate: usize,
        chosen: Option<&Bound<'_, PyArray1<bool>>>,
    ) -> PyResult<usize> {
        let texts = texts(strings)?;
        let chosen = chosen.map(PyArrayMethods::to_vec).transpose()?;
        if let Some(chosen) = &chosen
            && chosen.len() != texts.len()
        {
            let message = format!("got {} choices for {} rows; expected one for each", chosen.len(), texts.len());
            return Err(PyValueError::new_err(message));
        }
        py.detach(|| {
            let mut poll = Poll::new();
            let mut bytes = 0;
            for (row, text) in texts.iter().flatten().enumerate() {
                if chosen.as_ref().is_none_or(|chosen| chosen[row]) {
                    self.0.add(first(text, truncate)).map_err(value_error)?;
                    bytes += text.len();
                }
                poll.check()?;
            }
            Ok(bytes)
        })
    }

    fn merge(&mut self, py: Python<'_>, words: &Bound<'_, PyAny>, counts: &Bound<'_, PyAny>) -> PyResult<()> {
        add_words(py, words, counts, |word, count| self.0.add_word(word, count))
    }

    fn words<'py>(&mut self, py: Python<'py>) -> PyResult<(ArrowArray, Bound<'py, PyArray1<i64>>)> {
        let counter = std::mem::take(&mut self.0);
        let Words { bytes, offsets, counts } = py.detach(|| counter.words());
        let buffers = vec![offsets.into(), bytes.into()];
        let words =
            ArrayData::try_new(DataType::LargeBinary, counts.len(), None, 0, buffers, vec![]).map_err(value_error)?;
        Ok((ArrowArray::new(&LargeBinaryArray::from(words)), PyArray1::from_vec(py, counts)))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }
}

/// Vocabulary by id, merges by rank, replacements by rank, whether 32 bits would have been too few.
type Learned<'py> = (Bound<'py, PyList>, Bound<'py, PyList>, Bound<'py, PyArray1<i64>>, bool);

/// Byte-level BPE from counted words.
#[pyclass(module = "pairmill._native")]
pub(crate) struct Trainer(CoreTrainer);

#[pymethods]
impl Trainer {
    #[new]
    fn new() -> Self {
        Self(CoreTrainer::default())
    }

    fn add(&mut self, py: Python<'_>, words: &Bound<'_, PyAny>, counts: &Bound<'_, PyAny>) -> PyResult<()> {
        add_words(py, words, counts, |word, count| self.0.add(word, count))
    }

    #[pyo3(signature = (vocab_size, special_tokens, min_frequency = 2, full_alphabet = false))]
    fn train<'py>(
        &mut self,
        py: Python<'py>,
        vocab_size: usize,
        special_tokens: Vec<String>,
        min_frequency: u64,
        full_alphabet: bool,
    ) -> PyResult<Learned<'py>> {
        let trainer = std::mem::take(&mut self.0);
        let trained = py.detach(|| {
            let options = Options { vocab_size, special_tokens: &special_tokens, min_frequency, full_alphabet };
            let mut poll = Poll::new();
            trainer.train(options, &mut || poll.check())
        })?;
        learned(py, trained)
    }

    #[getter]
    fn text_bytes(&self) -> i64 {
        self.0.bytes()
    }

    fn __len__(&self) -> usize {
        self.0.words() as usize
    }
}

fn learned(py: Python<'_>, trained: Trained) -> PyResult<Learned<'_>> {
    // One Python text for each token, which the merges share: a text of its own for each side would be three times the
    // time and memory.
    let tokens: Vec<_> = trained.vocab.iter().map(|token| PyString::new(py, token)).collect();
    let merges =
        trained.merges.iter().map(|&(left, right)| PyTuple::new(py, [&tokens[left as usize], &tokens[right as usize]]));
    let merges = PyList::new(py, merges.collect::<PyResult<Vec<_>>>()?)?;
    Ok((PyList::new(py, tokens)?, merges, PyArray1::from_vec(py, trained.replaced), trained.i32_overflow))
}

/// The indices of the documents that data_io keeps, in order.
#[pyfunction]
pub(crate) fn data_io_document_sample<'py>(
    py: Python<'py>,
    seed: u64,
    name: &str,
    n: usize,
    limit: usize,
) -> PyResult<Bound<'py, PyArray1<u64>>> {
    let sample = py.detach(|| pairmill_core::bpe::documents::data_io_document_sample(seed, name, n, limit));
    Ok(PyArray1::from_vec(py, sample.map_err(value_error)?))
}
