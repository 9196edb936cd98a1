//! The file of tokens, copied from those of the tasks.

use std::collections::HashMap;
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
use pairmill_core::digest::{Hash, Node, join, leaf};
use pairmill_core::read::read_piece;
use pairmill_core::sample::gather::{WIDTH, gather};
use pyo3::create_exception;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

use crate::carry::{Column, Rows};

create_exception!(pairmill._native, TaskError, PyValueError);

/// Bytes that are put together, digested and written at once, in the processor's cache: a subtree of BLAKE3's tree.
const LEAF: usize = 1 << 18;
/// Up to this many ids between two spans are read too: another read takes as long as copying these.
const APART: u64 = 1024;
/// At most this many ids are read at once, so that they stay in the processor's cache until they are used.
const ONCE: u64 = 1 << 16;
/// Bytes of the header of a one-dimensional `.npy`.
const HEADER: usize = 128;
/// Bytes of a task's file that are digested at once, and then copied from: a subtree, which stays in the processor's cache.
const PIECE: u64 = 1 << 17;
/// A file is digested in passing unless so many times the bytes that are copied would have to be read for it.
const SPARSE: u64 = 16;

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
    sources: Vec<Source>,
    handle: Option<i32>,
    size: u64,
    width: usize,
    limit: u64,
    threads: usize,
    written: Mutex<Written>,
    /// Of the file, which the kernel too lets one thread write at a time; it would let the others spin.
    turn: Mutex<()>,
}

/// The file of a task, its tokens, and whether it is to be digested in passing.
type Source = (PathBuf, u64, bool);

#[derive(Default)]
struct Written {
    nodes: Vec<Node>,
    /// The bytes after the last whole leaf.
    rest: Vec<u8>,
    /// Of the files of tasks, as far as they are digested.
    digests: Vec<Option<Hash>>,
    /// The task that was last, more rows of which may come.
    open: Option<Open>,
}

/// A task whose file is digested up to here.
struct Open {
    task: usize,
    nodes: Vec<Node>,
    /// The token after the last that was copied.
    end: u64,
}

#[pymethods]
impl TokenFile {
    /// `sources`: files of tasks, their tokens, and whether to digest them in passing; `limit`: no id reaches it.
    #[new]
    #[pyo3(signature = (sources, *, head, handle, tokens, width, limit, threads))]
    fn new(
        sources: Vec<Source>,
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
        let written = Written { rest: head, digests: vec![None; sources.len()], ..Default::default() };
        let written = Mutex::new(written);
        Ok(Self {
            sources,
            handle,
            size,
            width,
            limit: limit.unwrap_or(u64::MAX),
            threads,
            written,
            turn: Mutex::default(),
        })
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
        let columns = [inst_start, inst_len, resp_start, resp_len];
        let rows = Rows::new(&columns)?;
        if tasks.len() != counts.len()
            || counts.iter().sum::<usize>() != rows.len()
            || tasks.iter().any(|&task| task >= self.sources.len())
        {
            return Err(PyValueError::new_err("got tasks that do not fit the rows"));
        }
        py.detach(|| {
            let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
            let open = written.open.take().and_then(|open| {
                if tasks.first() == Some(&open.task) {
                    return Some(open);
                }
                self.close(&mut written, open);
                None
            });
            let piece = RowPiece::new(self, &rows, &tasks, &counts, open.as_ref())?;
            let made = self.append(&mut written, piece.bytes(), |place, out, read| piece.fill(place, out, read))?;
            piece.digest(made.pieces, open, &mut written);
            Ok(made.read)
        })
    }

    /// Append bytes.
    fn put(&self, py: Python<'_>, data: PyReadonlyArray1<'_, u8>) -> PyResult<()> {
        let data = data.as_slice()?;
        py.detach(|| {
            let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
            self.append(&mut written, data.len() as u64, |place, out, _| {
                out.copy_from_slice(&data[place as usize..][..out.len()]);
                Ok(Filled::default())
            })?;
            Ok(())
        })
    }

    /// Digests, as 64 hexadecimal digits, of the files of tasks; empty where not all was read in passing.
    fn digests(&self, py: Python<'_>) -> Vec<String> {
        py.detach(|| {
            let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(open) = written.open.take() {
                self.close(&mut written, open);
            }
            let digests = written.digests.iter();
            digests.map(|hash| hash.map(|hash| hash.to_hex().to_string()).unwrap_or_default()).collect()
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
            let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
            write_all_at(handle, bytes, place).map_err(Failure::Write)?;
        }
        Ok(leaf(bytes, place, self.size <= LEAF as u64))
    }

    /// Digest what is left of a task's file, unless that is much: several threads then do it later.
    fn close(&self, written: &mut Written, open: Open) {
        let (path, length, _) = &self.sources[open.task];
        let (size, mut nodes) = (bytes_of(*length), open.nodes);
        let left = nodes.len() as u64..size.div_ceil(PIECE);
        if left.end.saturating_sub(left.start) > 1 << 8 {
            return;
        }
        let failed = |error: io::Error| Failure::Read(open.task, error.raw_os_error().unwrap_or_default());
        let read = |file: File| {
            look_at(&file, left.start * PIECE..size, &mut Vec::new(), failed, |place, bytes| {
                nodes.push(leaf(bytes, place, size <= PIECE));
                Ok(())
            })
        };
        // Whoever digests it later tells why it cannot be read.
        if File::open(path).map_err(failed).and_then(read).is_ok() {
            written.digests[open.task] = join(&nodes);
        }
    }

    /// Append bytes that `fill` gives from a place on: leaf by leaf, in any order.
    fn append(
        &self,
        written: &mut Written,
        bytes: u64,
        fill: impl Fn(u64, &mut [u8], &mut Reader) -> Result<Filled, Failure> + Sync,
    ) -> PyResult<Filled> {
        let (first, before) = (written.nodes.len(), written.rest.len());
        let total = before as u64 + bytes;
        if (first * LEAF) as u64 + total > self.size {
            return Err(PyValueError::new_err("got more tokens than planned"));
        }
        let leaves = total.div_ceil(LEAF as u64) as usize;
        let next = AtomicUsize::new(0);
        let made = Mutex::new(Made { nodes: vec![None; leaves], ..Default::default() });
        let work = || {
            let (mut out, mut read) = (Vec::with_capacity(LEAF), Reader::default());
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
                let filled = fill(place, &mut out[kept..], &mut read).and_then(|filled| {
                    // The last one waits for what comes next.
                    let node = if length == LEAF { Some(self.leaf(first + number, &out)?) } else { None };
                    Ok((filled, node))
                });
                let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
                match filled {
                    Ok((filled, node)) => {
                        made.filled.read += filled.read;
                        made.filled.pieces.extend(filled.pieces);
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
        Ok(made.filled)
    }
}

/// What a thread reads with: a buffer, and the file of the task that was last, whose length and header were right.
#[derive(Default)]
struct Reader {
    buffer: Vec<u8>,
    open: Option<(usize, File)>,
}

/// What was read to fill a part.
#[derive(Default)]
struct Filled {
    read: u64,
    /// Digested pieces: the task, and the piece's number in its file.
    pieces: Vec<(usize, u64, Node)>,
}

/// What the leaves of an append gave.
#[derive(Default)]
struct Made {
    nodes: Vec<Option<Node>>,
    rest: Vec<u8>,
    filled: Filled,
    failed: Option<(usize, Failure)>,
}

/// Rows whose tokens are copied.
struct RowPiece<'a> {
    file: &'a TokenFile,
    /// Their tokens in the files of the tasks: starts and lengths, of rows that follow each other together.
    spans: Vec<(u64, u64)>,
    /// Tokens up to the end of each span.
    ends: Vec<u64>,
    tasks: Vec<Part>,
}

/// The rows of a task.
struct Part {
    task: usize,
    /// Their first span, and the one after the last.
    spans: Range<usize>,
    /// The first piece of its file that is to be digested; none if the file is not, as its spans come in no order, say.
    digested: Option<u64>,
    /// Whether it has no other rows.
    whole: bool,
    /// The token after the last span.
    end: u64,
}

impl<'a> RowPiece<'a> {
    fn new(
        file: &'a TokenFile,
        rows: &Rows<'_>,
        tasks: &[usize],
        counts: &[usize],
        open: Option<&Open>,
    ) -> Result<Self, Failure> {
        let (mut spans, mut ends) = (Vec::<(u64, u64)>::new(), Vec::new());
        let (mut total, mut after) = (0_u64, 0);
        let mut parts = Vec::with_capacity(tasks.len());
        for (number, (&task, &count)) in tasks.iter().zip(counts).enumerate() {
            let (_, length, mut ascending) = file.sources[task];
            let open = open.filter(|_| number == 0);
            let (first, before, mut last) = (after, spans.len(), open.map_or(0, |open| open.end));
            after += count;
            for row in first..after {
                for (start, size) in rows.spans(row) {
                    // Before anything is allocated: spans are not to be trusted.
                    let end = start.checked_add(size).filter(|&end| end <= length).ok_or(Failure::Row(task))?;
                    total = total.saturating_add(size);
                    if size > 0 {
                        ascending &= start >= last;
                        match (spans[before..].last_mut(), ends.last_mut()) {
                            (Some(span), Some(to)) if start == last => (span.1, *to) = (span.1 + size, total),
                            _ => {
                                spans.push((start, size));
                                ends.push(total);
                            }
                        }
                        last = end;
                    }
                }
            }
            let digested = ascending.then(|| open.map_or(0, |open| open.nodes.len() as u64));
            let part = before..spans.len();
            parts.push(Part { task, spans: part, digested, whole: number + 1 < tasks.len(), end: last });
        }
        Ok(Self { file, spans, ends, tasks: parts })
    }

    fn bytes(&self) -> u64 {
        self.ends.last().map_or(0, |&tokens| tokens.saturating_mul(self.file.width as u64))
    }

    /// Fill `out` with tokens from this byte on.
    fn fill(&self, place: u64, out: &mut [u8], reader: &mut Reader) -> Result<Filled, Failure> {
        let width = self.file.width;
        let wanted = place / width as u64..(place + out.len() as u64) / width as u64;
        let mut span = self.ends.partition_point(|&end| end <= wanted.start);
        let (mut rest, mut filled) = (out, Filled::default());
        let mut spans = Vec::new();
        let from = self.tasks.partition_point(|part| part.spans.end <= span);
        for part in &self.tasks[from..] {
            spans.clear();
            let mut held = 0;
            while span < part.spans.end && self.start(span) < wanted.end {
                held += clip(self.start(span)..self.ends[span], &wanted, self.spans[span].0, &mut spans);
                span += 1;
            }
            let (mine, others) = rest.split_at_mut((held * width as u64) as usize);
            rest = others;
            if held > 0 {
                let pieces = self.pieces(part, &wanted, &spans);
                let pieces = pieces.filter(|pieces| {
                    let more = (pieces.end - pieces.start) * PIECE;
                    more <= held * WIDTH as u64 * SPARSE + PIECE * SPARSE
                });
                self.copy(part.task, &spans, pieces, mine, reader, &mut filled)?;
            }
            if span < part.spans.end || span == self.ends.len() {
                break;
            }
        }
        Ok(filled)
    }

    fn start(&self, span: usize) -> u64 {
        span.checked_sub(1).map_or(0, |before| self.ends[before])
    }

    /// The pieces of the task's file that are digested with these spans: those that begin up to the next spans.
    fn pieces(&self, part: &Part, wanted: &Range<u64>, spans: &[(u64, u64)]) -> Option<Range<u64>> {
        let from = part.digested?;
        let first = if wanted.start <= self.start(part.spans.start) {
            from
        } else {
            bytes_of(spans.first()?.0).div_ceil(PIECE).max(from)
        };
        let after = if wanted.end < self.start(part.spans.end) {
            bytes_of(self.place(wanted.end)).div_ceil(PIECE)
        } else if part.whole {
            bytes_of(self.file.sources[part.task].1).div_ceil(PIECE)
        } else {
            bytes_of(part.end) / PIECE
        };
        Some(first..after.max(first))
    }

    /// Where a token is in the file of its task.
    fn place(&self, token: u64) -> u64 {
        let span = self.ends.partition_point(|&end| end <= token);
        self.spans[span].0 + (token - self.start(span))
    }

    fn copy(
        &self,
        task: usize,
        spans: &[(u64, u64)],
        pieces: Option<Range<u64>>,
        out: &mut [u8],
        Reader { buffer, open }: &mut Reader,
        filled: &mut Filled,
    ) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::Read(task, error.raw_os_error().unwrap_or_default());
        let (path, length, _) = &self.file.sources[task];
        let size = bytes_of(*length);
        let file = match open.take() {
            Some((last, file)) if last == task => file,
            _ => {
                let (file, mut head) = (File::open(path).map_err(failed)?, [0; HEADER]);
                let is_long = file.metadata().map_err(failed)?.len() == size;
                if !is_long || file.read_exact_at(&mut head, 0).is_err() || head[..] != header(*length) {
                    return Err(Failure::Odd(task));
                }
                file
            }
        };
        let (_, file) = open.insert((task, file));
        if let Some(pieces) = pieces {
            return self.copy_digested(task, (file, size), spans, pieces, out, buffer, filled);
        }
        let (mut first, mut rest) = (0, out);
        while first < spans.len() {
            let (ids, next) = range(spans, first);
            let bytes = ((ids.end - ids.start) as usize) * WIDTH;
            filled.read += bytes as u64;
            let near = spans[first..next].iter().map(|&(start, length)| (start - ids.start, length));
            let ids = read_piece(file, bytes_of(ids.start), bytes, buffer).map_err(failed)?;
            rest = self.gather(task, ids, near, rest)?;
            first = next;
        }
        Ok(())
    }

    /// Copy spans, which ascend, from pieces that are looked at one after another, and digest those that are asked for.
    #[allow(clippy::too_many_arguments)]
    fn copy_digested(
        &self,
        task: usize,
        (file, size): (&File, u64),
        spans: &[(u64, u64)],
        pieces: Range<u64>,
        out: &mut [u8],
        buffer: &mut Vec<u8>,
        filled: &mut Filled,
    ) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::Read(task, error.raw_os_error().unwrap_or_default());
        let (Some(&(start, _)), Some(&(last, length))) = (spans.first(), spans.last()) else { return Ok(()) };
        // Of a piece that was digested with the spans before, only what follows them.
        let first = bytes_of(start).min(pieces.start * PIECE);
        let after = size.min(bytes_of(last + length).div_ceil(PIECE).max(pieces.end) * PIECE);
        let (mut rest, mut next) = (out, 0);
        look_at(file, first..after, buffer, failed, |place, bytes| {
            if pieces.contains(&(place / PIECE)) {
                filled.pieces.push((task, place / PIECE, leaf(bytes, place, size <= PIECE)));
            }
            filled.read += bytes.len() as u64;
            // The ids in this piece: the header is as long as some of them.
            let begin = (place / WIDTH as u64).saturating_sub((HEADER / WIDTH) as u64);
            let end = ((place + bytes.len() as u64) / WIDTH as u64).saturating_sub((HEADER / WIDTH) as u64);
            let skipped = if place == 0 { (HEADER / WIDTH) as u64 } else { 0 };
            let from = next;
            while spans.get(next).is_some_and(|&(start, _)| start < end) {
                next += 1;
            }
            let near = spans[from..next].iter().map(|&(start, length)| {
                let (first, after) = (start.max(begin), (start + length).min(end));
                (first - begin + skipped, after.saturating_sub(first))
            });
            rest = self.gather(task, bytes, near, std::mem::take(&mut rest))?;
            // The last one may go on in the next piece.
            if next > from && spans[next - 1].0 + spans[next - 1].1 > end {
                next -= 1;
            }
            Ok(())
        })
    }

    /// Put spans of ids into the first bytes of `out`; the others.
    fn gather<'b>(
        &self,
        task: usize,
        ids: &[u8],
        spans: impl Iterator<Item = (u64, u64)> + Clone,
        out: &'b mut [u8],
    ) -> Result<&'b mut [u8], Failure> {
        let held: u64 = spans.clone().map(|(_, length)| length).sum();
        let (mine, others) = out.split_at_mut_checked(held as usize * self.file.width).ok_or(Failure::Row(task))?;
        // Spans and room are of our own making.
        let largest = gather(ids, spans, self.file.width, mine).map_err(|_| Failure::Row(task))?;
        if u64::from(largest) >= self.file.limit {
            return Err(Failure::Large(task, largest));
        }
        Ok(others)
    }

    /// Join the digested pieces of each task.
    fn digest(&self, mut pieces: Vec<(usize, u64, Node)>, mut open: Option<Open>, written: &mut Written) {
        // By part, as a task comes once.
        let order: HashMap<usize, usize> = self.tasks.iter().enumerate().map(|(at, part)| (part.task, at)).collect();
        pieces.sort_unstable_by_key(|(task, piece, _)| (order.get(task).copied(), *piece));
        let mut rest = &pieces[..];
        for part in &self.tasks {
            let mut nodes = open.take().map(|open| open.nodes).unwrap_or_default();
            let count = rest.iter().take_while(|(task, ..)| *task == part.task).count();
            let Some((mine, others)) = rest.split_at_checked(count) else { return };
            rest = others;
            let Some(from) = part.digested else { continue };
            // Nothing is left out, unless its spans are few and far between.
            if !(from..).zip(mine).all(|(number, &(_, piece, _))| number == piece) {
                continue;
            }
            nodes.extend(mine.iter().map(|&(.., node)| node));
            if !part.whole {
                written.open = Some(Open { task: part.task, nodes, end: part.end });
            } else if nodes.len() as u64 == bytes_of(self.file.sources[part.task].1).div_ceil(PIECE) {
                written.digests[part.task] = join(&nodes);
            }
        }
    }
}

/// Bytes of a file up to the token of this number.
fn bytes_of(tokens: u64) -> u64 {
    HEADER as u64 + tokens * WIDTH as u64
}

/// Do `work` on these bytes of a file, one piece after another; each comes with its place.
fn look_at(
    file: &File,
    bytes: Range<u64>,
    buffer: &mut Vec<u8>,
    failed: impl Fn(io::Error) -> Failure,
    mut work: impl FnMut(u64, &[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut place = bytes.start;
    while place < bytes.end {
        let length = bytes.end.min((place / PIECE + 1) * PIECE) - place;
        work(place, read_piece(file, place, length as usize, buffer).map_err(&failed)?)?;
        place += length;
    }
    Ok(())
}

/// Add the part of a span that is wanted, in spans of at most `ONCE`; its length. `tokens` are its places among all, and
/// `first` is its start in its file. What follows the last span is added to that: a response to its instruction, say.
fn clip(tokens: Range<u64>, wanted: &Range<u64>, first: u64, spans: &mut Vec<(u64, u64)>) -> u64 {
    let (start, end) = (tokens.start.max(wanted.start), tokens.end.min(wanted.end));
    let mut at = start;
    while at < end {
        let mut length = (end - at).min(ONCE);
        let begin = first + (at - tokens.start);
        match spans.last_mut() {
            Some(last) if last.0 + last.1 == begin && last.1 < ONCE => {
                length = length.min(ONCE - last.1);
                last.1 += length;
            }
            _ => spans.push((begin, length)),
        }
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
