//! Leaked benchmark items.
