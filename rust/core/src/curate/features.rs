//! Hashed word features.
