//! BLAKE3 of bytes as they pass, and of files.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use numpy::PyReadonlyArray1;
use pairmill_core::digest::{Hasher, Node, PIECE, Piece, join, pieces};
use pairmill_core::mapped::look;
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
/// Bytes that are looked at together.
const BLOCK: u64 = 1 << 20;

/// Digests, as 64 hexadecimal digits, of files, which `threads` threads read by pieces. A file that became shorter
/// meanwhile has an empty digest.
#[pyfunction]
pub(crate) fn blake3_files(py: Python<'_>, paths: Vec<PathBuf>, threads: usize) -> PyResult<Vec<String>> {
    py.detach(|| {
        let mut files = Vec::with_capacity(paths.len());
        let mut work = Vec::with_capacity(paths.len());
        for path in paths {
            let size = path.metadata().map_err(|error| os_error(&error, &path))?.len();
            work.extend((0..pieces(size)).map(|number| (files.len(), number)));
            files.push((path, size));
        }
        let mut nodes = digested(&files, &work, threads)?.into_iter();
        let digests = files.iter().map(|(_, size)| {
            let nodes: Vec<Node> = nodes.by_ref().take(pieces(*size) as usize).flatten().collect();
            let whole = nodes.len() as u64 == pieces(*size);
            join(&nodes).filter(|_| whole).map(|hash| hash.to_hex().to_string()).unwrap_or_default()
        });
        Ok(digests.collect())
    })
}

/// The nodes of pieces (a file, and the piece's number in it), in order; none of what a file no longer has.
fn digested(files: &[(PathBuf, u64)], work: &[(usize, u64)], threads: usize) -> PyResult<Vec<Option<Node>>> {
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
                    let node = node(&files[file], number, &mut block, stopped);
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
    block: &mut Vec<u8>,
    stopped: &AtomicBool,
) -> PyResult<Option<Node>> {
    let failed = |error| os_error(&error, path);
    let file = File::open(path).map_err(failed)?;
    let mut piece = Piece::new(number, *size);
    let (mut place, end) = (number * PIECE, (*size).min((number + 1) * PIECE));
    while place < end {
        if stopped.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let length = BLOCK.min(end - place);
        match look(&file, place, length as usize, block, |bytes| piece.update(bytes)) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            looked => looked.map_err(failed)?,
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
