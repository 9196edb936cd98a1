//! Hashed word features, and logistic regression over them.

use arrow_array::builder::LargeStringBuilder;
use arrow_array::{Array, LargeStringArray};
use numpy::{PyArray1, PyReadonlyArray1};
use pairmill_core::curate::features::{Counts, Hash, Terms, letters};
use pairmill_core::curate::logit::{Training, probabilities, train};
use pairmill_core::guard::Progress;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::collections::HashMap;

use crate::arrow::{ArrowArray, text_bytes, texts};
use crate::poll::watched;

type Sparse<'py> = (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<u32>>, Bound<'py, PyArray1<u32>>);
type Letters<'py> = (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<i64>>);
type Found<'py> = (Bound<'py, PyArray1<u32>>, ArrowArray, Bound<'py, PyArray1<u64>>);

/// Columns of equally many rows, and how their terms become buckets.
pub(super) struct Given {
    pub(super) columns: Vec<LargeStringArray>,
    pub(super) rows: usize,
    pub(super) ngrams: usize,
    pub(super) buckets: u32,
    pub(super) hash: Hash,
}

impl Given {
    pub(super) fn new(columns: &[Bound<'_, PyAny>], ngrams: usize, buckets: u64, hash: &str) -> PyResult<Self> {
        let columns = columns.iter().map(texts).collect::<PyResult<Vec<_>>>()?;
        let lengths: Vec<usize> = columns.iter().map(Array::len).collect();
        let Some(&rows) = lengths.first() else {
            return Err(PyValueError::new_err("got no columns; expected at least one"));
        };
        if lengths.iter().any(|&length| length != rows) {
            return Err(PyValueError::new_err(format!("got columns of {lengths:?} rows; expected as many in each")));
        }
        if !(1..=64).contains(&ngrams) {
            return Err(PyValueError::new_err(format!("got ngrams = {ngrams}; expected 1 to 64")));
        }
        let buckets = match u32::try_from(buckets) {
            Ok(buckets) if buckets > 0 => buckets,
            _ => return Err(PyValueError::new_err(format!("got buckets = {buckets}; expected 1 to 2**32 - 1"))),
        };
        let hash = match hash {
            "xxh3" => Hash::Xxh3,
            "sha256" => Hash::Sha256,
            _ => return Err(PyValueError::new_err(format!("got hash = {hash:?}; expected xxh3 or sha256"))),
        };
        Ok(Self { columns, rows, ngrams, buckets, hash })
    }

    pub(super) fn bytes(&self) -> usize {
        self.columns.iter().map(text_bytes).sum()
    }

    /// Show each term of each row, with its bucket, to `term`; after each row call `end`.
    fn visit<S>(&self, progress: &Progress, state: &mut S, term: impl Fn(&mut S, &[u8], u32), end: impl Fn(&mut S)) {
        let mut terms = Terms::new(self.ngrams);
        for row in (0..self.rows).take_while(|&row| progress.begin(row)) {
            for column in &self.columns {
                terms.read(column.value(row));
                for one in terms.iter() {
                    term(state, one, self.hash.bucket(one, self.buckets));
                }
            }
            end(state);
        }
    }
}

/// How often each bucket occurs in each row; counts of the columns are added.
#[pyfunction]
#[pyo3(signature = (columns, ngrams = 2, buckets = 10_000, hash = "xxh3"))]
pub(crate) fn curate_bucket_counts<'py>(
    py: Python<'py>,
    columns: Vec<Bound<'py, PyAny>>,
    ngrams: usize,
    buckets: u64,
    hash: &str,
) -> PyResult<Sparse<'py>> {
    let given = Given::new(&columns, ngrams, buckets, hash)?;
    let bytes = given.bytes();
    let (counts, _) = watched(py, given, bytes, |given, progress| {
        let mut state = (Counts::default(), Vec::new());
        given.visit(
            progress,
            &mut state,
            |(_, found), _, bucket| found.push(bucket),
            |(counts, found)| {
                counts.push(found);
                found.clear();
            },
        );
        state
    })?;
    Ok((
        PyArray1::from_vec(py, counts.indptr),
        PyArray1::from_vec(py, counts.indices),
        PyArray1::from_vec(py, counts.counts),
    ))
}

/// The terms that fall into the buckets that are wanted, and how often each occurs; by bucket, then by term.
#[pyfunction]
#[pyo3(signature = (columns, wanted, ngrams = 2, buckets = 10_000, hash = "xxh3"))]
pub(crate) fn curate_bucket_terms<'py>(
    py: Python<'py>,
    columns: Vec<Bound<'py, PyAny>>,
    wanted: PyReadonlyArray1<'py, u32>,
    ngrams: usize,
    buckets: u64,
    hash: &str,
) -> PyResult<Found<'py>> {
    let given = Given::new(&columns, ngrams, buckets, hash)?;
    let bytes = given.bytes();
    let wanted: Vec<u32> = wanted.as_array().to_vec();
    let (found, terms, counts) = watched(py, (given, wanted), bytes, |(given, wanted), progress| {
        let mut found: HashMap<u32, HashMap<Vec<u8>, u64>> = wanted.iter().map(|&one| (one, HashMap::new())).collect();
        given.visit(
            progress,
            &mut found,
            |found, term, bucket| {
                if let Some(terms) = found.get_mut(&bucket) {
                    match terms.get_mut(term) {
                        Some(count) => *count += 1,
                        None => drop(terms.insert(term.to_owned(), 1)),
                    }
                }
            },
            |_| {},
        );
        let mut all: Vec<(u32, Vec<u8>, u64)> = found
            .into_iter()
            .flat_map(|(bucket, terms)| terms.into_iter().map(move |(term, count)| (bucket, term, count)))
            .collect();
        all.sort_unstable();
        let mut texts = LargeStringBuilder::new();
        for (_, term, _) in &all {
            texts.append_value(String::from_utf8_lossy(term));
        }
        let (found, counts): (Vec<u32>, Vec<u64>) = all.iter().map(|&(bucket, _, count)| (bucket, count)).unzip();
        (found, ArrowArray::new(&texts.finish()), counts)
    })?;
    Ok((PyArray1::from_vec(py, found), terms, PyArray1::from_vec(py, counts)))
}

fn sparse(
    indptr: &PyReadonlyArray1<'_, i64>,
    indices: &PyReadonlyArray1<'_, u32>,
    counts: &PyReadonlyArray1<'_, u32>,
    buckets: usize,
) -> PyResult<Counts> {
    let counts = Counts {
        indptr: indptr.as_array().to_vec(),
        indices: indices.as_array().to_vec(),
        counts: counts.as_array().to_vec(),
    };
    let length = counts.indices.len();
    let ends = (counts.indptr.first(), counts.indptr.last());
    if counts.counts.len() != length || ends != (Some(&0), Some(&(length as i64))) || !counts.indptr.is_sorted() {
        return Err(PyValueError::new_err("indptr, indices and counts do not belong together"));
    }
    if let Some(bucket) = counts.indices.iter().find(|&&bucket| bucket as usize >= buckets) {
        return Err(PyValueError::new_err(format!("got bucket {bucket}; expected less than {buckets}")));
    }
    Ok(counts)
}

/// The probability of each row.
#[pyfunction]
pub(crate) fn curate_logit<'py>(
    py: Python<'py>,
    indptr: PyReadonlyArray1<'py, i64>,
    indices: PyReadonlyArray1<'py, u32>,
    counts: PyReadonlyArray1<'py, u32>,
    weights: PyReadonlyArray1<'py, f32>,
    bias: f64,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let weights: Vec<f64> = weights.as_array().iter().map(|&weight| f64::from(weight)).collect();
    let counts = sparse(&indptr, &indices, &counts, weights.len())?;
    Ok(PyArray1::from_vec(py, py.detach(|| probabilities(&counts, &weights, bias))))
}

/// Weights and bias of rows that are positive or not.
#[pyfunction]
#[pyo3(signature = (indptr, indices, counts, positive, buckets, *, steps = 300, rate = 4.0, momentum = 0.9, l2 = 1e-4))]
#[allow(clippy::too_many_arguments)] // all but `buckets` have names where it is called
pub(crate) fn curate_logit_train<'py>(
    py: Python<'py>,
    indptr: PyReadonlyArray1<'py, i64>,
    indices: PyReadonlyArray1<'py, u32>,
    counts: PyReadonlyArray1<'py, u32>,
    positive: PyReadonlyArray1<'py, bool>,
    buckets: usize,
    steps: usize,
    rate: f64,
    momentum: f64,
    l2: f64,
) -> PyResult<(Bound<'py, PyArray1<f64>>, f64)> {
    let counts = sparse(&indptr, &indices, &counts, buckets)?;
    let positive = positive.as_array().to_vec();
    if positive.len() + 1 != counts.indptr.len() {
        let rows = counts.indptr.len() - 1;
        return Err(PyValueError::new_err(format!("got {} labels and {rows} rows; expected as many", positive.len())));
    }
    let training = Training { steps, rate, momentum, l2 };
    let (weights, bias) = watched(py, (counts, positive), usize::MAX, move |(counts, positive), progress| {
        train(counts, positive, buckets, training, |step| progress.begin(step))
    })?;
    Ok((PyArray1::from_vec(py, weights), bias))
}

/// Of each text how many letters it has, with the marks on them, and how many characters that are not white space.
#[pyfunction]
pub(crate) fn curate_letters<'py>(py: Python<'py>, strings: &Bound<'py, PyAny>) -> PyResult<Letters<'py>> {
    let texts = texts(strings)?;
    let (all, visible): (Vec<i64>, Vec<i64>) = py.detach(|| {
        let counts = texts.iter().flatten().map(letters);
        counts.map(|(letters, visible)| (letters as i64, visible as i64)).unzip()
    });
    Ok((PyArray1::from_vec(py, all), PyArray1::from_vec(py, visible)))
}
