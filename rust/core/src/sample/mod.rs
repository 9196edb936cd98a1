//! What `sample` runs: the rows that may be sampled, the walks that draw them and the order of an epoch; and on a node
//! the copying of their tokens into its arrays.

pub mod drawn;
pub mod eligible;
pub mod gather;
pub mod insert;
pub mod numbers;
pub mod order;
pub mod passes;
pub mod philox;
pub mod planner;
pub mod source;
pub mod summary;
pub mod table;
pub mod walk;
