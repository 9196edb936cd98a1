//! Panics become values that name the row at which they happened.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The row that work has reached, and whether anybody still waits for the work.
#[derive(Default)]
pub struct Progress {
    row: AtomicUsize,
    abandoned: AtomicBool,
}

impl Progress {
    /// Record that `row` begins. Returns false if nobody waits for the work any more.
    pub fn begin(&self, row: usize) -> bool {
        self.row.store(row, Ordering::Relaxed);
        !self.abandoned.load(Ordering::Relaxed)
    }

    /// Tell the work that its result is not wanted any more.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }
}

/// A panic with its place in the source, and the row at which it happened.
#[derive(Debug)]
pub struct Panic {
    /// Counted from 0.
    pub row: usize,
    /// What was said, and the place in the source.
    pub message: String,
}

thread_local! {
    /// What the hook saw of a panic that will be caught; `None` where none will be.
    static SEEN: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Do `work`, which records its row in `progress`.
///
/// # Errors
/// `work` panicked.
pub fn guarded<T>(progress: &Progress, work: impl FnOnce() -> T) -> Result<T, Panic> {
    static HOOK: Once = Once::new();
    HOOK.call_once(install);
    SEEN.set(Some(String::new()));
    let done = catch_unwind(AssertUnwindSafe(work));
    let message = SEEN.take().unwrap_or_default();
    done.map_err(|_| Panic { row: progress.row.load(Ordering::Relaxed), message })
}

/// Only a hook learns the place of a panic, and what Rust prints of a panic is not a line of the log.
fn install() {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let place = info.location().map_or_else(String::new, |place| format!(" at {place}"));
        let message = format!("{}{place}", text_of(info.payload()));
        let nobody = SEEN.with_borrow_mut(|seen| seen.as_mut().map(|seen| *seen = message).is_none());
        if nobody {
            before(info);
        }
    }));
}

fn text_of(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("panic")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::panic, clippy::expect_used)]
    fn a_panic_says_its_row_and_place() {
        let progress = Progress::default();
        let broken = guarded(&progress, || {
            for row in 0..10 {
                assert!(progress.begin(row));
                assert!(row != 7, "row {row} breaks it");
            }
        });
        let panic = broken.expect_err("it panicked");
        assert_eq!(panic.row, 7);
        assert!(panic.message.starts_with("row 7 breaks it at "), "{}", panic.message);
        assert!(panic.message.contains("guard.rs:"), "{}", panic.message);
        assert_eq!(guarded(&progress, || 5).ok(), Some(5));
    }
}
