//! Summaries of tasks, from their index arrays.

use std::num::NonZero;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1};
use pairmill_core::guard::Progress;
use pairmill_core::sample::eligible::{Kept, Limits};
use pairmill_core::sample::source::{Buffers, Chunk, Source};
use pairmill_core::sample::summary::{Summary, WIDTH};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::poll::watched;

/// What decides which rows may be sampled: `context_size`, `min_resp_length`, and whether responses are tested whole.
type Options = (u64, u64, bool);

/// The limits, and whether rows that are too long are split.
fn limits(long_context: &str, (context, shortest, test_whole): Options) -> PyResult<(Limits, bool)> {
    if !["truncate", "drop", "split"].contains(&long_context) {
        return Err(PyValueError::new_err(format!("got {long_context:?}; expected truncate, drop or split")));
    }
    Ok((Limits { context, shortest, drop_long: long_context == "drop", test_whole }, long_context == "split"))
}

/// Numbers of each task, and which tasks were read.
type Summaries<'py> = (Bound<'py, PyArray2<i64>>, Bound<'py, PyArray1<bool>>);

/// The summary of rows in memory, int64 [numbers].
#[pyfunction]
pub(crate) fn sample_summary<'py>(
    py: Python<'py>,
    inst_len: PyReadonlyArray1<'_, u64>,
    resp_len: PyReadonlyArray1<'_, u64>,
    long_context: &str,
    options: Options,
) -> PyResult<Bound<'py, PyArray1<i64>>> {
    let (limits, split) = limits(long_context, options)?;
    let [inst, resp] = [inst_len.as_slice()?.to_vec(), resp_len.as_slice()?.to_vec()];
    if inst.len() != resp.len() {
        return Err(PyValueError::new_err(format!("got {} and {} lengths", inst.len(), resp.len())));
    }
    let columns = [Vec::new(), inst, Vec::new(), resp];
    let chunk = Chunk { tokens: 0, rows: columns[1].len() as u64, first: 0, columns: &columns };
    let mut summary = Summary::default();
    summary.add(&chunk, &limits, split, &mut Kept::default());
    Ok(PyArray1::from_slice(py, &summary.numbers()))
}

/// The summaries of tasks on this machine, int64 [tasks, numbers], and whether each could be read, bool [tasks].
#[pyfunction]
pub(crate) fn sample_summaries<'py>(
    py: Python<'py>,
    tasks: Vec<(PathBuf, Vec<String>, String)>,
    options: Options,
    threads: NonZero<usize>,
) -> PyResult<Summaries<'py>> {
    let mut sources = Vec::with_capacity(tasks.len());
    for (folder, digests, long_context) in tasks {
        sources.push((Source { folder, digests }, limits(&long_context, options)?));
    }
    let read = watched(py, sources, usize::MAX, move |sources, progress| summarize(sources, threads.get(), progress))?;
    let fit: Vec<_> = read.iter().map(Option::is_some).collect();
    let numbers: Vec<_> = read.iter().flat_map(|item| item.as_ref().map_or([0; WIDTH], Summary::numbers)).collect();
    Ok((PyArray1::from_vec(py, numbers).reshape([fit.len(), WIDTH])?, PyArray1::from_vec(py, fit)))
}

/// A summary of each task; `None` of one that its reader calls unfit.
fn summarize(sources: &[(Source, (Limits, bool))], threads: usize, progress: &Progress) -> Vec<Option<Summary>> {
    let next = AtomicUsize::new(0);
    let made = Mutex::new(vec![None; sources.len()]);
    thread::scope(|scope| {
        for _ in 0..threads.min(sources.len()) {
            scope.spawn(|| {
                let (mut mine, mut buffers) = (Vec::new(), Buffers::default());
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some((source, (limits, split))) = sources.get(number).filter(|_| progress.begin(number)) else {
                        break;
                    };
                    mine.push((number, Summary::read(source, limits, *split, &mut buffers).ok()));
                }
                let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
                mine.into_iter().for_each(|(number, summary)| made[number] = summary);
            });
        }
    });
    made.into_inner().unwrap_or_else(PoisonError::into_inner)
}
