//! What the loader runs in a training process: which rows or windows make a batch, and the batch itself.

pub mod mixture;
pub mod mt19937;
pub mod numbers;
pub mod pack;
pub mod plain;
pub mod prefixlm;
pub mod walk;
pub mod windows;
