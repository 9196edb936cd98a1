//! What the loader calls in a training process: rows and windows to batches, and the orders that they come in.

pub(crate) mod files;
pub(crate) mod mixture;
pub(crate) mod mt19937;
pub(crate) mod rows;
pub(crate) mod walk;
pub(crate) mod windows;
