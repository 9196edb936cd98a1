//! The file of tokens, copied from those of the tasks.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use numpy::PyReadonlyArray1;
use pairmill_core::descriptor::write_all_at;
use pairmill_core::digest::{Node, join, leaf};
use pairmill_core::sample::gather::{WIDTH, gather};
use pyo3::create_exception;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

use crate::carry::{Column, Rows};

create_exception!(pairmill._native, TaskError, PyValueError);

/// Bytes that are put together, digested and written at once: a subtree of BLAKE3's tree.
const LEAF: usize = 1 << 20;
/// Up to this many ids between two spans are read too: another read takes as long as copying these.
const APART: u64 = 1024;
/// At most this many ids are read at once, so that they stay in the processor's cache until they are used.
const ONCE: u64 = 1 << 16;
/// Bytes of the header of a one-dimensional `.npy`.
const HEADER: usize = 128;

/// Why tokens cannot be copied.
enum Failure {
    /// The file of this task is not what was planned, or not of little-endian uint32.
    Odd(usize),
    /// This task has this id.
    Large(usize, u32),
    /// The file of this task cannot be read; 0 = it ended early.
    Read(usize, i32),
    /// A row's spans are not valid.
    Row(usize),
    Write(io::Error),
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Odd(task) => TaskError::new_err(("odd", task, 0)),
            Failure::Large(task, id) => TaskError::new_err(("large", task, id)),
            Failure::Read(task, number) => TaskError::new_err(("read", task, number)),
            Failure::Row(task) => TaskError::new_err(("row", task, 0)),
            Failure::Write(error) => os_error(error),
        }
    }
}

fn os_error(error: io::Error) -> PyErr {
    match error.raw_os_error() {
        Some(number) => PyOSError::new_err((number, error.to_string())),
        None => error.into(),
    }
}

/// The file of tokens: appended to in order, by leaves that several threads make.
#[pyclass(frozen, module = "pairmill._native")]
pub(crate) struct TokenFile {
    sources: Vec<(PathBuf, u64)>,
    handle: Option<i32>,
    size: u64,
    width: usize,
    limit: u64,
    threads: usize,
    written: Mutex<Written>,
}

#[derive(Default)]
struct Written {
    nodes: Vec<Node>,
    /// The bytes after the last whole leaf.
    rest: Vec<u8>,
}

#[pymethods]
impl TokenFile {
    /// `sources`: files of tasks, and their tokens; `limit`: no id reaches it.
    #[new]
    #[pyo3(signature = (sources, *, head, handle, tokens, width, limit, threads))]
    fn new(
        sources: Vec<(PathBuf, u64)>,
        head: Vec<u8>,
        handle: Option<i32>,
        tokens: u64,
        width: usize,
        limit: Option<u64>,
        threads: usize,
    ) -> PyResult<Self> {
        let size = tokens.checked_mul(width as u64).and_then(|bytes| bytes.checked_add(head.len() as u64));
        let size = size.filter(|&size| {
            size < 1 << 62 && matches!(width, 1 | 2 | 4) && head.len().is_multiple_of(WIDTH) && head.len() < LEAF
        });
        let size = size.ok_or_else(|| PyValueError::new_err(format!("got {tokens} tokens of {width} bytes")))?;
        let written = Mutex::new(Written { nodes: Vec::new(), rest: head });
        Ok(Self { sources, handle, size, width, limit: limit.unwrap_or(u64::MAX), threads, written })
    }

    /// Append the tokens of rows of some tasks: instruction, then response, row after row; the bytes that were read.
    /// After an error nothing has been appended.
    #[allow(clippy::too_many_arguments)]
    fn copy(
        &self,
        py: Python<'_>,
        tasks: Vec<usize>,
        counts: Vec<usize>,
        inst_start: Column<'_>,
        inst_len: Column<'_>,
        resp_start: Column<'_>,
        resp_len: Column<'_>,
    ) -> PyResult<u64> {
        let rows = Rows::new([inst_start, inst_len, resp_start, resp_len])?;
        if tasks.len() != counts.len()
            || counts.iter().sum::<usize>() != rows.len()
            || tasks.iter().any(|&task| task >= self.sources.len())
        {
            return Err(PyValueError::new_err("got tasks that do not fit the rows"));
        }
        py.detach(|| {
            let piece = RowPiece::new(self, rows, &tasks, &counts)?;
            let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
            self.append(&mut written, piece.bytes(), |place, out, read| piece.fill(place, out, read))
        })
    }

    /// Append bytes.
    fn put(&self, py: Python<'_>, data: PyReadonlyArray1<'_, u8>) -> PyResult<()> {
        let data = data.as_slice()?;
        py.detach(|| {
            let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
            self.append(&mut written, data.len() as u64, |place, out, _| {
                out.copy_from_slice(&data[place as usize..][..out.len()]);
                Ok(0)
            })?;
            Ok(())
        })
    }

    /// Digest, as 64 hexadecimal digits, of the whole file, and its bytes; both of what was appended.
    fn finish(&self, py: Python<'_>) -> PyResult<(String, u64)> {
        py.detach(|| {
            let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
            let rest = std::mem::take(&mut written.rest);
            let size = (written.nodes.len() * LEAF + rest.len()) as u64;
            if !rest.is_empty() {
                let node = self.leaf(written.nodes.len(), &rest)?;
                written.nodes.push(node);
            }
            let digest = join(&written.nodes).ok_or_else(|| PyValueError::new_err("got no byte"))?;
            Ok((digest.to_hex().to_string(), size))
        })
    }
}

impl TokenFile {
    /// Digest a leaf, and write it.
    fn leaf(&self, number: usize, bytes: &[u8]) -> Result<Node, Failure> {
        let place = (number * LEAF) as u64;
        if let Some(handle) = self.handle {
            write_all_at(handle, bytes, place).map_err(Failure::Write)?;
        }
        Ok(leaf(bytes, place, self.size <= LEAF as u64))
    }

    /// Append bytes that `fill` gives from a place on: leaf by leaf, in any order.
    fn append(
        &self,
        written: &mut Written,
        bytes: u64,
        fill: impl Fn(u64, &mut [u8], &mut Vec<u8>) -> Result<u64, Failure> + Sync,
    ) -> PyResult<u64> {
        let (first, before) = (written.nodes.len(), written.rest.len());
        let total = before as u64 + bytes;
        if (first * LEAF) as u64 + total > self.size {
            return Err(PyValueError::new_err("got more tokens than planned"));
        }
        let leaves = total.div_ceil(LEAF as u64) as usize;
        let next = AtomicUsize::new(0);
        let made = Mutex::new(Made { nodes: vec![None; leaves], rest: Vec::new(), read: 0, failed: None });
        let work = || {
            let (mut out, mut read) = (Vec::with_capacity(LEAF), Vec::new());
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= leaves {
                    return;
                }
                let start = (number * LEAF) as u64;
                let length = (total - start).min(LEAF as u64) as usize;
                out.resize(length, 0);
                let kept = if number == 0 { before } else { 0 };
                out[..kept].copy_from_slice(&written.rest[..kept]);
                let place = (start + kept as u64).saturating_sub(before as u64);
                let filled = fill(place, &mut out[kept..], &mut read).and_then(|read| {
                    // The last one waits for what comes next.
                    let node = if length == LEAF { Some(self.leaf(first + number, &out)?) } else { None };
                    Ok((read, node))
                });
                let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
                match filled {
                    Ok((read, node)) => {
                        made.read += read;
                        if node.is_none() {
                            made.rest = std::mem::take(&mut out);
                        }
                        made.nodes[number] = node;
                    }
                    Err(failure) => {
                        // The first leaf's, whichever thread was faster: those before it have begun, and end.
                        if made.failed.as_ref().is_none_or(|(other, _)| number < *other) {
                            made.failed = Some((number, failure));
                        }
                        next.store(leaves, Ordering::Relaxed);
                    }
                }
            }
        };
        thread::scope(|scope| {
            for _ in 1..self.threads.clamp(1, leaves.max(1)) {
                // Without it the others do the work.
                let _ = thread::Builder::new().spawn_scoped(scope, work);
            }
            work();
        });
        let made = made.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, failure)) = made.failed {
            return Err(failure.into());
        }
        written.nodes.extend(made.nodes.into_iter().flatten());
        written.rest = made.rest;
        Ok(made.read)
    }
}

/// What the leaves of an append gave.
struct Made {
    nodes: Vec<Option<Node>>,
    rest: Vec<u8>,
    read: u64,
    failed: Option<(usize, Failure)>,
}

/// Rows whose tokens are copied.
struct RowPiece<'a> {
    file: &'a TokenFile,
    rows: Rows,
    /// Tokens up to the end of each row.
    ends: Vec<u64>,
    /// The tasks, and the row after the last of each.
    tasks: Vec<(usize, usize)>,
}

impl<'a> RowPiece<'a> {
    fn new(file: &'a TokenFile, rows: Rows, tasks: &[usize], counts: &[usize]) -> Result<Self, Failure> {
        let mut ends = Vec::with_capacity(rows.len());
        let (mut total, mut after) = (0_u64, 0);
        let mut parts = Vec::with_capacity(tasks.len());
        for (&task, &count) in tasks.iter().zip(counts) {
            let length = file.sources[task].1;
            for row in after..after + count {
                for (start, size) in rows.spans(row) {
                    // Before anything is allocated: spans are not to be trusted.
                    start.checked_add(size).filter(|&end| end <= length).ok_or(Failure::Row(task))?;
                    total = total.saturating_add(size);
                }
                ends.push(total);
            }
            after += count;
            parts.push((task, after));
        }
        Ok(Self { file, rows, ends, tasks: parts })
    }

    fn bytes(&self) -> u64 {
        self.ends.last().map_or(0, |&tokens| tokens.saturating_mul(self.file.width as u64))
    }

    /// Fill `out` with tokens from this byte on; the bytes that were read.
    fn fill(&self, place: u64, out: &mut [u8], buffer: &mut Vec<u8>) -> Result<u64, Failure> {
        let width = self.file.width;
        let wanted = place / width as u64..(place + out.len() as u64) / width as u64;
        let mut row = self.ends.partition_point(|&end| end <= wanted.start);
        let (mut rest, mut read) = (out, 0);
        let mut spans = Vec::new();
        let from = self.tasks.partition_point(|&(_, after)| after <= row);
        for &(task, after) in &self.tasks[from..] {
            spans.clear();
            let mut held = 0;
            while row < after && self.start(row) < wanted.end {
                let mut start = self.start(row);
                for (first, length) in self.rows.spans(row) {
                    held += clip(start..start + length, &wanted, first, &mut spans);
                    start += length;
                }
                row += 1;
            }
            let (mine, others) = rest.split_at_mut((held * width as u64) as usize);
            rest = others;
            if held > 0 {
                read += self.copy(task, &spans, mine, buffer)?;
            }
            if row < after || row == self.ends.len() {
                break;
            }
        }
        Ok(read)
    }

    fn start(&self, row: usize) -> u64 {
        row.checked_sub(1).map_or(0, |before| self.ends[before])
    }

    fn copy(&self, task: usize, spans: &[(u64, u64)], out: &mut [u8], buffer: &mut Vec<u8>) -> Result<u64, Failure> {
        let failed = |error: io::Error| Failure::Read(task, error.raw_os_error().unwrap_or_default());
        let (path, length) = &self.file.sources[task];
        let file = File::open(path).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        let mut head = [0; HEADER];
        if size != HEADER as u64 + length * WIDTH as u64
            || file.read_exact_at(&mut head, 0).is_err()
            || head[..] != header(*length)
        {
            return Err(Failure::Odd(task));
        }
        let (mut first, mut read, mut rest) = (0, 0, out);
        while first < spans.len() {
            let (ids, next) = range(spans, first);
            let bytes = ((ids.end - ids.start) as usize) * WIDTH;
            buffer.resize(buffer.len().max(bytes), 0);
            let bytes = &mut buffer[..bytes];
            file.read_exact_at(bytes, HEADER as u64 + ids.start * WIDTH as u64).map_err(failed)?;
            read += bytes.len() as u64;
            let held: u64 = spans[first..next].iter().map(|&(_, length)| length).sum();
            let (mine, others) = rest.split_at_mut(held as usize * self.file.width);
            let near = spans[first..next].iter().map(|&(start, length)| (start - ids.start, length));
            // Spans and room are of our own making.
            let largest = gather(bytes, near, self.file.width, mine).map_err(|_| Failure::Row(task))?;
            if u64::from(largest) >= self.file.limit {
                return Err(Failure::Large(task, largest));
            }
            rest = others;
            first = next;
        }
        Ok(read)
    }
}

/// Add the part of a span that is wanted, in spans of at most `ONCE`; its length. `tokens` are its places among all, and
/// `first` is its start in its file.
fn clip(tokens: Range<u64>, wanted: &Range<u64>, first: u64, spans: &mut Vec<(u64, u64)>) -> u64 {
    let (start, end) = (tokens.start.max(wanted.start), tokens.end.min(wanted.end));
    let mut at = start;
    while at < end {
        let length = (end - at).min(ONCE);
        spans.push((first + (at - tokens.start), length));
        at += length;
    }
    end.saturating_sub(start)
}

/// The ids that are read at once from a span on, and the span after them.
fn range(spans: &[(u64, u64)], first: usize) -> (Range<u64>, usize) {
    let (start, length) = spans[first];
    let (mut ids, mut next) = (start..start + length, first + 1);
    while let Some(&(start, length)) = spans.get(next) {
        let near = start >= ids.end && start - ids.end <= APART;
        if !near || start + length - ids.start > ONCE {
            break;
        }
        ids.end = start + length;
        next += 1;
    }
    (ids, next)
}

/// The header that numpy gives an array of so many ids.
fn header(length: u64) -> Vec<u8> {
    let text = format!("{{'descr': '<u4', 'fortran_order': False, 'shape': ({length},), }}");
    let mut head = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    head.extend(text.bytes());
    head.resize(HEADER - 1, b' ');
    head.push(b'\n');
    head
}
