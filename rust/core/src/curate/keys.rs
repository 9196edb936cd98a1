//! Keys of equal rows.
