//! Near duplicates.
