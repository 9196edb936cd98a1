//! What select calls: counts and weights of hashed features, and draws of rows.

use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2, PyUntypedArrayMethods};
use pairmill_core::curate::draws::{Draws, gumbel, ln};
use pairmill_core::curate::importance::Features;
use pairmill_core::curate::text::Tokens;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::features::Given;
use crate::arrow::{text_bytes, texts};
use crate::poll::watched;

type Scored<'py> = (Bound<'py, PyArray2<f64>>, Bound<'py, PyArray1<u32>>);

/// Add how often each bucket occurs in some rows to `counts`.
#[pyfunction]
#[pyo3(signature = (columns, counts, ngrams = 2, hash = "xxh3", which = None))]
pub(crate) fn select_count<'py>(
    py: Python<'py>,
    columns: Vec<Bound<'py, PyAny>>,
    counts: &Bound<'py, PyArray1<i64>>,
    ngrams: usize,
    hash: &str,
    which: Option<PyReadonlyArray1<'py, bool>>,
) -> PyResult<u64> {
    let given = Given::new(&columns, ngrams, counts.len() as u64, hash)?;
    let which = which.map(|which| which.as_array().to_vec());
    if let Some(which) = &which
        && which.len() != given.rows
    {
        let message = format!("got {} values of which and {} rows; expected as many of each", which.len(), given.rows);
        return Err(PyValueError::new_err(message));
    }
    let bytes = given.bytes();
    let (found, features) = watched(py, (given, which), bytes, |(given, which), progress| {
        let mut features = Features::new(given.ngrams, given.buckets, given.hash);
        let mut found = vec![0i64; given.buckets as usize];
        for row in (0..given.rows).take_while(|&row| progress.begin(row)) {
            if which.as_ref().is_none_or(|which| which[row]) {
                features.count(given.columns.iter().map(|column| column.value(row)), &mut found);
            }
        }
        let sum: i64 = found.iter().sum();
        (found, sum as u64)
    })?;
    let mut sums = counts.try_readwrite()?;
    sums.as_array_mut().iter_mut().zip(found).for_each(|(sum, more)| *sum += more);
    Ok(features)
}

/// For each target the sum of the weights of each row's features, and how many features the row has.
#[pyfunction]
#[pyo3(signature = (columns, weights, ngrams = 2, hash = "xxh3"))]
pub(crate) fn select_score<'py>(
    py: Python<'py>,
    columns: Vec<Bound<'py, PyAny>>,
    weights: PyReadonlyArray2<'py, f64>,
    ngrams: usize,
    hash: &str,
) -> PyResult<Scored<'py>> {
    let [targets, buckets] = [weights.shape()[0], weights.shape()[1]];
    if targets == 0 {
        return Err(PyValueError::new_err("got weights of no target; expected at least one"));
    }
    let given = Given::new(&columns, ngrams, buckets as u64, hash)?;
    // By bucket: the weights of all targets are read together.
    let weights: Vec<f64> = weights.as_array().t().iter().copied().collect();
    let bytes = given.bytes();
    let (sums, counts) = watched(py, (given, weights), bytes, move |(given, weights), progress| {
        let mut features = Features::new(given.ngrams, given.buckets, given.hash);
        let mut sums = vec![0.0; targets * given.rows];
        let mut counts = Vec::with_capacity(given.rows);
        let mut found = vec![0.0; targets];
        for row in (0..given.rows).take_while(|&row| progress.begin(row)) {
            let texts = given.columns.iter().map(|column| column.value(row));
            let count = features.score(texts, weights, &mut found);
            counts.push(u32::try_from(count).unwrap_or(u32::MAX));
            for (target, &sum) in found.iter().enumerate() {
                sums[target * given.rows + row] = sum;
            }
        }
        (sums, counts)
    })?;
    let rows = counts.len();
    Ok((PyArray1::from_vec(py, sums).reshape([targets, rows])?, PyArray1::from_vec(py, counts)))
}

/// A draw within (0, 1) for each row of a task, by its number alone; or Gumbel noise.
#[pyfunction]
#[pyo3(signature = (task, rows, seed, salt, *, noise = false))]
pub(crate) fn select_draws<'py>(
    py: Python<'py>,
    task: &str,
    rows: PyReadonlyArray1<'py, i64>,
    seed: u64,
    salt: &str,
    noise: bool,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let rows: Vec<i64> = rows.as_array().to_vec();
    if let Some(row) = rows.iter().find(|&&row| row < 0) {
        return Err(PyValueError::new_err(format!("got row {row}; expected 0 or more")));
    }
    let found = py.detach(|| {
        let mut draws = Draws::new(task, seed, salt);
        let uniform = rows.iter().map(|&row| draws.of(row as u64));
        if noise { uniform.map(gumbel).collect() } else { uniform.collect::<Vec<f64>>() }
    });
    Ok(PyArray1::from_vec(py, found))
}

/// The natural logarithm of each number, with the same bits on every machine.
#[pyfunction]
pub(crate) fn select_ln<'py>(py: Python<'py>, numbers: PyReadonlyArray1<'py, f64>) -> Bound<'py, PyArray1<f64>> {
    let numbers: Vec<f64> = numbers.as_array().to_vec();
    PyArray1::from_vec(py, py.detach(|| numbers.into_iter().map(ln).collect()))
}

/// How many tokens each text has.
#[pyfunction]
pub(crate) fn select_tokens<'py>(py: Python<'py>, strings: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArray1<u32>>> {
    let texts = texts(strings)?;
    let bytes = text_bytes(&texts);
    let found = watched(py, texts, bytes, |texts, progress| {
        let mut tokens = Tokens::new();
        let mut counts = Vec::new();
        for (row, text) in texts.iter().flatten().enumerate() {
            if !progress.begin(row) {
                break;
            }
            tokens.read(text);
            counts.push(u32::try_from(tokens.len()).unwrap_or(u32::MAX));
        }
        counts
    })?;
    Ok(PyArray1::from_vec(py, found))
}
