//! Counting and training.

use arrow_array::LargeBinaryArray;
use numpy::PyArray1;
use pairmill_core::count::{CountError, WordCounter as Core, truncate as first};
use pairmill_core::train::{Options, TrainError, train};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::arrow::{ArrowArray, Counted, Texts};
use crate::poll::Poll;

fn count_error(error: &CountError) -> PyErr {
    PyValueError::new_err(error.to_string())
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

    fn add(&mut self, py: Python<'_>, strings: &Bound<'_, PyAny>, truncate: usize) -> PyResult<()> {
        let texts = Texts::import(strings)?;
        py.detach(|| {
            let mut poll = Poll::new();
            texts.iter().try_for_each(|text| {
                self.0.add(first(text, truncate)).map_err(|error| count_error(&error))?;
                poll.check()
            })
        })
    }

    fn merge(&mut self, py: Python<'_>, words: &Bound<'_, PyAny>, counts: &Bound<'_, PyAny>) -> PyResult<()> {
        let counted = Counted::import(words, counts)?;
        py.detach(|| {
            let mut poll = Poll::new();
            counted.iter().try_for_each(|(word, count)| {
                self.0.add_word(word, count).map_err(|error| count_error(&error))?;
                poll.check()
            })
        })
    }

    fn words<'py>(&self, py: Python<'py>) -> (ArrowArray, Bound<'py, PyArray1<i64>>) {
        let (words, counts) = py.detach(|| {
            let sorted = self.0.words();
            let words = LargeBinaryArray::from_iter_values(sorted.iter().map(|(word, _)| word));
            (ArrowArray::new(&words), sorted.iter().map(|&(_, count)| count).collect())
        });
        (words, PyArray1::from_vec(py, counts))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }
}

/// What ends a training early.
enum Stop {
    Words(TrainError),
    Signal(PyErr),
}

impl From<TrainError> for Stop {
    fn from(error: TrainError) -> Self {
        Self::Words(error)
    }
}

/// Vocabulary by id, merges by rank, whether 32 bits would have been too few.
type Trained = (Vec<String>, Vec<(String, String)>, bool);

/// Train byte-level BPE on counted words.
#[pyfunction]
#[pyo3(signature = (words, counts, vocab_size, special_tokens, min_frequency = 2, full_alphabet = false))]
pub(crate) fn train_bpe(
    py: Python<'_>,
    words: &Bound<'_, PyAny>,
    counts: &Bound<'_, PyAny>,
    vocab_size: usize,
    special_tokens: Vec<String>,
    min_frequency: u64,
    full_alphabet: bool,
) -> PyResult<Trained> {
    let counted = Counted::import(words, counts)?;
    let trained = py.detach(|| {
        let options = Options { vocab_size, special_tokens: &special_tokens, min_frequency, full_alphabet };
        let mut poll = Poll::new();
        train(counted.iter(), options, &mut || poll.check().map_err(Stop::Signal))
    });
    let trained = trained.map_err(|stop| match stop {
        Stop::Words(error) => PyValueError::new_err(error.to_string()),
        Stop::Signal(error) => error,
    })?;
    let token = |id: u32| trained.vocab[id as usize].clone();
    let merges = trained.merges.iter().map(|&(left, right)| (token(left), token(right))).collect();
    Ok((trained.vocab, merges, trained.i32_overflow))
}
