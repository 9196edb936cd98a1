//! Errors that name a row of the arrays that were given; whoever gave them knows the file.

use std::fmt::Display;

use pyo3::create_exception;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use pairmill_core::guard::Panic;

create_exception!(pairmill._native, RowError, PyValueError);
create_exception!(pairmill._native, UnknownTagError, PyValueError);
create_exception!(pairmill._native, NoCausalError, PyValueError);
create_exception!(pairmill._native, RowPanic, PyRuntimeError);

/// A `ValueError` that says what `error` says.
pub(crate) fn value_error(error: impl Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// A `RowPanic` of the row that the work had reached.
pub(crate) fn row_panic(panic: Panic) -> PyErr {
    RowPanic::new_err((panic.row, panic.message))
}
