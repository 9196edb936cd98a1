//! Shuffles and gathers of the sampler.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use numpy::{Element, PyArray1, PyArrayMethods, PyReadonlyArray1, PyReadwriteArray1};
use pairmill_core::sample::gather::{Id, WIDTH, gather as core_gather};
use pairmill_core::sample::philox::Philox as Core;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::errors::value_error;

/// numpy's `Generator(Philox)`, for permutations.
#[pyclass(frozen, module = "pairmill._native")]
pub(crate) struct Philox(Mutex<Core>);

#[pymethods]
impl Philox {
    #[new]
    fn new(low: u64, high: u64) -> Self {
        Self(Mutex::new(Core::new([low, high])))
    }

    /// Shuffle in place.
    fn shuffle(&self, py: Python<'_>, mut values: PyReadwriteArray1<'_, u32>) -> PyResult<()> {
        let values = values.as_slice_mut()?;
        let done = py.detach(|| self.0.lock().unwrap_or_else(PoisonError::into_inner).shuffle(values));
        done.map_err(value_error)
    }
}

/// Ids of spans of an array in memory, one after another; the largest.
#[pyfunction]
pub(crate) fn gather(
    py: Python<'_>,
    tokens: PyReadonlyArray1<'_, u8>,
    starts: PyReadonlyArray1<'_, i64>,
    lengths: PyReadonlyArray1<'_, i64>,
    out: &Bound<'_, PyAny>,
) -> PyResult<u32> {
    let ids = tokens.as_slice()?;
    let spans = Spans::of(&starts, &lengths)?;
    filled(py, spans, out, &Memory(ids)).map(|(largest, _)| largest)
}

/// Ids of spans of an array in a file, one after another; the largest, and the bytes that were read.
#[pyfunction]
pub(crate) fn gather_file(
    py: Python<'_>,
    path: PathBuf,
    offset: u64,
    starts: PyReadonlyArray1<'_, i64>,
    lengths: PyReadonlyArray1<'_, i64>,
    out: &Bound<'_, PyAny>,
) -> PyResult<(u32, u64)> {
    let spans = Spans::of(&starts, &lengths)?;
    filled(py, spans, out, &Stored { file: File::open(path)?, offset })
}

/// Starts and lengths, equally many.
#[derive(Clone, Copy)]
struct Spans<'a> {
    starts: &'a [i64],
    lengths: &'a [i64],
}

impl<'a> Spans<'a> {
    fn of(starts: &'a PyReadonlyArray1<'_, i64>, lengths: &'a PyReadonlyArray1<'_, i64>) -> PyResult<Self> {
        let (starts, lengths) = (starts.as_slice()?, lengths.as_slice()?);
        if starts.len() == lengths.len() {
            Ok(Self { starts, lengths })
        } else {
            Err(PyValueError::new_err(format!("got {} starts and {} lengths", starts.len(), lengths.len())))
        }
    }

    /// The number of ids in all spans; an error names the first span that is not valid.
    fn total(self) -> PyResult<u64> {
        let mut spans = (0..).zip(self.iter(0..self.starts.len(), 0));
        // Of spans that exist, no memory holds as many as it takes to pass 2^64.
        spans.try_fold(0, |sum: u64, (number, (start, length))| {
            end_of(number, start, length).map(|_| sum.saturating_add(length))
        })
    }

    /// A negative number becomes one that is outside any array.
    fn iter(self, numbers: Range<usize>, first: u64) -> impl Iterator<Item = (u64, u64)> {
        let (starts, lengths) = (&self.starts[numbers.clone()], &self.lengths[numbers]);
        starts.iter().zip(lengths).map(move |(&start, &length)| ((start as u64).wrapping_sub(first), length as u64))
    }
}

/// Where ids come from.
trait Source: Sync {
    /// The largest id, and the bytes that were read.
    fn fill<T: Id>(&self, spans: Spans<'_>, out: &mut [T]) -> PyResult<(u32, u64)>;
}

struct Memory<'a>(&'a [u8]);

impl Source for Memory<'_> {
    fn fill<T: Id>(&self, spans: Spans<'_>, out: &mut [T]) -> PyResult<(u32, u64)> {
        let made = core_gather(self.0, spans.iter(0..spans.starts.len(), 0), out);
        made.map(|largest| (largest, 0)).map_err(value_error)
    }
}

struct Stored {
    file: File,
    offset: u64,
}

/// Up to this many ids between two spans are read too: another read takes as long as copying these.
const APART: u64 = 1024;
/// At most this many ids are read at once, so that they stay in the processor's cache until they are used.
const ONCE: u64 = 1 << 16;

impl Source for Stored {
    fn fill<T: Id>(&self, spans: Spans<'_>, out: &mut [T]) -> PyResult<(u32, u64)> {
        // Before anything is allocated: spans are not to be trusted.
        let total = spans.total()?;
        if total != out.len() as u64 {
            let than = if total > out.len() as u64 { "more" } else { "fewer" };
            return Err(PyValueError::new_err(format!("got spans of {total} ids, {than} than there is room for")));
        }
        let size = self.file.metadata()?.len();
        let (mut largest, mut read, mut first) = (0, 0, 0);
        let mut rest = out;
        let mut buffer = Vec::new();
        while first < spans.starts.len() {
            let range = range(spans, first)?;
            if self.offset.checked_add(range.ids.end * WIDTH as u64).is_none_or(|end| end > size) {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "failed to fill whole buffer").into());
            }
            let ids = (range.ids.end - range.ids.start) as usize;
            buffer.resize(buffer.len().max(ids * WIDTH), 0);
            let bytes = &mut buffer[..ids * WIDTH];
            self.file.read_exact_at(bytes, self.offset + range.ids.start * WIDTH as u64)?;
            read += bytes.len() as u64;
            let (mine, after) = std::mem::take(&mut rest)
                .split_at_mut_checked(range.held)
                .ok_or_else(|| PyValueError::new_err("got spans of more ids than there is room for"))?;
            let found =
                core_gather(bytes, spans.iter(first..range.next, range.ids.start), mine).map_err(value_error)?;
            largest = found.max(largest);
            rest = after;
            first = range.next;
        }
        Ok((largest, read))
    }
}

/// Spans that are read at once: those before `next`, which hold `held` ids.
struct Together {
    ids: Range<u64>,
    next: usize,
    held: usize,
}

fn end_of(number: usize, start: u64, length: u64) -> PyResult<u64> {
    // Below 2^61, so that no place in the file is beyond 2^64.
    let end = start.checked_add(length).filter(|end| end | start | length < 1 << 61);
    end.ok_or_else(|| PyValueError::new_err(format!("got a span (number {number}) that is not valid")))
}

fn range(spans: Spans<'_>, first: usize) -> PyResult<Together> {
    let mut found: Option<Together> = None;
    for (number, (start, length)) in (first..).zip(spans.iter(first..spans.starts.len(), 0)) {
        let end = end_of(number, start, length)?;
        let held = length as usize;
        match &mut found {
            None => found = Some(Together { ids: start..end, next: number + 1, held }),
            Some(range) => {
                let near = start >= range.ids.end && start - range.ids.end <= APART;
                if !near || end - range.ids.start > ONCE {
                    break;
                }
                *range = Together { ids: range.ids.start..end, next: number + 1, held: range.held + held };
            }
        }
    }
    found.ok_or_else(|| PyValueError::new_err("got no span"))
}

fn filled(py: Python<'_>, spans: Spans<'_>, out: &Bound<'_, PyAny>, source: &impl Source) -> PyResult<(u32, u64)> {
    if let Ok(out) = out.cast::<PyArray1<u16>>() {
        into(py, spans, out, source)
    } else if let Ok(out) = out.cast::<PyArray1<i32>>() {
        into(py, spans, out, source)
    } else if let Ok(out) = out.cast::<PyArray1<u8>>() {
        into(py, spans, out, source)
    } else {
        Err(PyTypeError::new_err("out: expected a one-dimensional array of uint8, uint16 or int32"))
    }
}

fn into<T: Id + Element>(
    py: Python<'_>,
    spans: Spans<'_>,
    out: &Bound<'_, PyArray1<T>>,
    source: &impl Source,
) -> PyResult<(u32, u64)> {
    let mut out = out.try_readwrite()?;
    let out = out.as_slice_mut()?;
    py.detach(|| source.fill(spans, out))
}
