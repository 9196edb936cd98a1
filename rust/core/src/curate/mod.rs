//! What curate and select do to texts: forms for comparison, keys, near duplicates, leaks, metrics, weights, draws.

mod bits;
mod characters;
mod classes;
mod counts;
pub mod decontaminate;
pub mod draws;
pub mod features;
pub mod importance;
pub mod keys;
pub mod logit;
pub mod metrics;
pub mod near;
pub mod pii;
mod repetition;
mod table;
pub mod text;
