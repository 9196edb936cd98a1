//! What curate does to texts: forms for comparison, keys, near duplicates, leaks, metrics.

mod characters;
mod classes;
mod counts;
pub mod decontaminate;
pub mod features;
pub mod keys;
pub mod logit;
pub mod metrics;
pub mod near;
pub mod pii;
pub mod text;
