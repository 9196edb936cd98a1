//! Personal data.
