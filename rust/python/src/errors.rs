//! Errors that name a row of the arrays that were given; whoever gave them knows the file.

use std::fmt::Display;

use pyo3::create_exception;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::guard::Panic;

create_exception!(pairmill._native, RowError, PyValueError);
create_exception!(pairmill._native, UnknownTagError, PyValueError);
create_exception!(pairmill._native, NoCausalError, PyValueError);
create_exception!(pairmill._native, RowPanic, PyRuntimeError);

/// A `ValueError` that says what `error` says.
pub(crate) fn value_error(error: impl Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

impl From<Panic> for PyErr {
    fn from(panic: Panic) -> Self {
        RowPanic::new_err((panic.row, panic.message))
    }
}
