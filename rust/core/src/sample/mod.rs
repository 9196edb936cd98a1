//! What `sample` runs on a node: the order of an epoch's rows, and the copying of their tokens into its arrays.

pub mod gather;
pub mod philox;
