//! Personal data in texts.
