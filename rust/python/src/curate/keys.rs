//! Keys of equal rows, and texts for comparison.
