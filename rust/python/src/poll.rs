//! Ctrl-C during work that is detached from the interpreter.

use std::time::{Duration, Instant};

use pyo3::prelude::*;

const INTERVAL: Duration = Duration::from_millis(50);

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
