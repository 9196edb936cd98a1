//! Texts for comparison.
