//! What curate and select call: texts in as Arrow columns, arrays out.

pub(crate) mod decontaminate;
pub(crate) mod features;
pub(crate) mod keys;
pub(crate) mod metrics;
pub(crate) mod near;
pub(crate) mod pii;
pub(crate) mod records;
pub(crate) mod select;
pub(crate) mod union;
