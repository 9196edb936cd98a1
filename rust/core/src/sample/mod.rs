//! What `sample` runs: the rows that may be sampled, the walks that draw them and the order of an epoch; and on a node
//! the copying of their tokens into its arrays.

pub mod eligible;
pub mod gather;
pub mod philox;
pub mod source;
pub mod summary;
