//! BLAKE3 of bytes as they pass, and of files.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use numpy::PyReadonlyArray1;
use pairmill_core::descriptor::{read_at, write_all_at};
use pairmill_core::digest::{Hasher, LEAF, Node, PIECE, Piece, join, pieces};
use pairmill_core::read::{aligned, read_piece};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

/// BLAKE3 of bytes in order.
#[pyclass(frozen, module = "pairmill._native")]
pub(crate) struct Blake3(Mutex<Hasher>);

#[pymethods]
impl Blake3 {
    #[new]
    fn new() -> Self {
        Self(Mutex::new(Hasher::new()))
    }

    /// Add the next bytes.
    fn update(&self, py: Python<'_>, data: PyReadonlyArray1<'_, u8>) -> PyResult<()> {
        let bytes = data.as_slice()?;
        py.detach(|| {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).update(bytes);
        });
        Ok(())
    }

    /// The digest of all bytes up to here, as 64 hexadecimal digits.
    fn hexdigest(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).finalize().to_hex().to_string()
    }
}

/// How long Ctrl-C may wait.
const INTERVAL: Duration = Duration::from_millis(50);
/// Bytes that are read at once, and stay in the processor's cache until they are digested.
const BLOCK: u64 = 1 << 17;

/// Digests, as 64 hexadecimal digits, of files, which `threads` threads read by pieces. A file that became shorter
/// meanwhile has an empty digest.
#[pyfunction]
pub(crate) fn blake3_files(py: Python<'_>, paths: Vec<PathBuf>, threads: usize) -> PyResult<Vec<String>> {
    py.detach(|| {
        let mut files = Vec::with_capacity(paths.len());
        let mut work = Vec::with_capacity(paths.len());
        for path in paths {
            let size = path.metadata().map_err(|error| os_error(&error, &path))?.len();
            work.extend((0..pieces(size, PIECE)).map(|number| (files.len(), number)));
            files.push((path, size));
        }
        let mut nodes = digested(&files, &work, PIECE, threads)?.into_iter();
        let digests = files.iter().map(|(_, size)| {
            let count = pieces(*size, PIECE) as usize;
            digest_of(&nodes.by_ref().take(count).collect::<Vec<_>>())
        });
        Ok(digests.collect())
    })
}

/// The digest of a file's pieces; empty if one is missing.
fn digest_of(nodes: &[Option<Node>]) -> String {
    let whole: Option<Vec<Node>> = nodes.iter().copied().collect();
    whole.and_then(|nodes| join(&nodes)).map(|hash| hash.to_hex().to_string()).unwrap_or_default()
}

/// The digest of a file whose pieces of 1 MiB are digested as `known` says, by number of the first of a run of them;
/// `threads` threads read the others. It is empty if the file became shorter meanwhile.
#[pyfunction]
pub(crate) fn blake3_joined(
    py: Python<'_>,
    path: PathBuf,
    known: Vec<(u64, Vec<u8>)>,
    threads: usize,
) -> PyResult<String> {
    py.detach(|| {
        let size = path.metadata().map_err(|error| os_error(&error, &path))?.len();
        let count = pieces(size, LEAF);
        let mut there = HashMap::new();
        // The only piece of a file is another node than a piece beside others.
        for (first, run) in known.iter().filter(|_| count > 1) {
            let (values, _) = run.as_chunks::<32>();
            there.extend((*first..).zip(values.iter().map(|value| Node::Inner(*value))));
        }
        let work: Vec<_> = (0..count).filter(|number| !there.contains_key(number)).map(|number| (0, number)).collect();
        let made = digested(&[(path, size)], &work, LEAF, threads)?;
        let mut made = made.into_iter();
        let nodes: Vec<_> =
            (0..count).map(|number| there.get(&number).copied().or_else(|| made.next().flatten())).collect();
        Ok(digest_of(&nodes))
    })
}

/// Threads write in turns: the kernel lets one thread write to a file at a time, and lets the others spin.
static TURN: Mutex<()> = Mutex::new(());
/// Bytes that are read, digested and written at once, in the processor's cache.
const ONCE: u64 = 1 << 18;

/// Copy bytes `[start, stop)` of an open file to `place` of another, and digest the pieces of 1 MiB of that one which they
/// fill. Returns how many bytes were copied, fewer only where the file ends, the number of the first such piece, and the
/// pieces' chaining values, one after another.
#[pyfunction]
pub(crate) fn copy_digested(
    py: Python<'_>,
    source: i32,
    target: i32,
    start: u64,
    stop: u64,
    place: u64,
) -> PyResult<(u64, u64, Vec<u8>)> {
    let failed = |error: io::Error| os_error(&error, Path::new(""));
    py.detach(|| {
        let mut block = Vec::new();
        let (mut values, mut piece) = (Vec::new(), None);
        let (first, end, mut at) = (place.div_ceil(LEAF), place + stop.saturating_sub(start), place);
        while at < end {
            // Up to the next border, so that each piece begins and ends with a block.
            let length = (ONCE - at % ONCE).min(end - at) as usize;
            let from = start + (at - place);
            let block = aligned(from, length, &mut block);
            let count = read_at(source, block, from).map_err(failed)?;
            let bytes = &block[..count];
            if at % LEAF == 0 && at + LEAF <= end {
                piece = Some(Piece::new(at / LEAF, u64::MAX, LEAF));
            }
            if let Some(piece) = &mut piece {
                piece.update(bytes);
            }
            {
                let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
                write_all_at(target, bytes, at).map_err(failed)?;
            }
            at += count as u64;
            if count < length {
                break;
            }
            if at % LEAF == 0
                && let Some(Node::Inner(value)) = piece.take().map(|piece| piece.finish())
            {
                values.extend_from_slice(&value);
            }
        }
        Ok((at - place, first, values))
    })
}

/// The nodes of pieces (a file, and the piece's number in it), in order; none of what a file no longer has.
fn digested(
    files: &[(PathBuf, u64)],
    work: &[(usize, u64)],
    width: u64,
    threads: usize,
) -> PyResult<Vec<Option<Node>>> {
    let (next, stopped) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (send, receive) = channel();
    let mut nodes = vec![None; work.len()];
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, work.len().max(1)) {
            let (send, next, stopped) = (send.clone(), &next, &stopped);
            thread::Builder::new().spawn_scoped(scope, move || {
                let mut block = Vec::new();
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&(file, number)) = work.get(place) else { return };
                    let node = node(&files[file], number, width, &mut block, stopped);
                    // Nobody receives after an error.
                    if send.send((place, node)).is_err() || stopped.load(Ordering::Relaxed) {
                        return;
                    }
                }
            })?;
        }
        drop(send);
        loop {
            let checked = match receive.recv_timeout(INTERVAL) {
                Ok((place, node)) => node.map(|node| nodes[place] = node),
                Err(RecvTimeoutError::Timeout) => Python::attach(|py| py.check_signals()),
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            checked.inspect_err(|_| stopped.store(true, Ordering::Relaxed))?;
        }
    })
    .map(|()| nodes)
}

fn node(
    (path, size): &(PathBuf, u64),
    number: u64,
    width: u64,
    block: &mut Vec<u8>,
    stopped: &AtomicBool,
) -> PyResult<Option<Node>> {
    let failed = |error| os_error(&error, path);
    let file = File::open(path).map_err(failed)?;
    let mut piece = Piece::new(number, *size, width);
    let (mut place, end) = (number * width, (*size).min((number + 1) * width));
    while place < end {
        if stopped.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let length = BLOCK.min(end - place);
        match read_piece(&file, place, length as usize, block) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => piece.update(read.map_err(failed)?),
        }
        place += length;
    }
    Ok(Some(piece.finish()))
}

/// An `OSError` with the file's name.
fn os_error(error: &io::Error, path: &Path) -> PyErr {
    match error.raw_os_error() {
        Some(number) => PyOSError::new_err((number, error.to_string(), path.to_path_buf())),
        None => PyOSError::new_err(error.to_string()),
    }
}
