//! Ctrl-C during work that is detached from the interpreter.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use pairmill_core::guard::{Progress, guarded};

use crate::errors::row_panic;

const INTERVAL: Duration = Duration::from_millis(50);
/// With at most this many bytes of text, work is done before anybody notices. A thread for each batch of 1 MB would take a
/// tenth of the time of encoding it.
const BRIEF: usize = 2 << 20;

/// Looks for signals, at most every 50 ms.
pub(crate) struct Poll {
    last: Instant,
}

impl Poll {
    pub(crate) fn new() -> Self {
        Self { last: Instant::now() }
    }

    /// Fails with what a signal handler raised, `KeyboardInterrupt` as a rule. Call it between rows.
    pub(crate) fn check(&mut self) -> PyResult<()> {
        if self.last.elapsed() < INTERVAL {
            return Ok(());
        }
        self.last = Instant::now();
        Python::attach(|py| py.check_signals())
    }
}

/// Do `work` on texts of `bytes` bytes in all. If they are many, it runs on a thread of its own, and signals are looked for
/// meanwhile: one text alone can take longer than somebody who pressed Ctrl-C waits.
///
/// Fails with a `RowPanic`, or with what a signal handler raised. `work` is then abandoned, and its `input` is leaked: the interpreter that
/// `input` came from may be gone when `work` ends.
pub(crate) fn watched<I: Send + 'static, T: Send + 'static>(
    py: Python<'_>,
    input: I,
    bytes: usize,
    work: impl FnOnce(&I, &Progress) -> T + Send + 'static,
) -> PyResult<T> {
    let progress = Arc::new(Progress::default());
    if bytes <= BRIEF {
        return py.detach(move || guarded(&progress, || work(&input, &progress))).map_err(row_panic);
    }
    let theirs = Arc::clone(&progress);
    let (send, receive) = sync_channel(1);
    py.detach(move || {
        thread::Builder::new().spawn(move || {
            let done = guarded(&theirs, || work(&input, &theirs));
            if let Err(unsent) = send.send((done, input)) {
                std::mem::forget(unsent);
            }
        })?;
        loop {
            match receive.recv_timeout(INTERVAL) {
                Ok((done, _)) => return done.map_err(row_panic),
                Err(RecvTimeoutError::Timeout) => {
                    Python::attach(|py| py.check_signals()).inspect_err(|_| progress.abandon())?;
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(PyRuntimeError::new_err("a thread ended without a result"));
                }
            }
        }
    })
}
