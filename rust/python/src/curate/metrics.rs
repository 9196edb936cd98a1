//! Metrics of texts.
