//! Errors that name a row of the arrays that were given; whoever gave them knows the file.

use pyo3::create_exception;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::guard::Panic;

create_exception!(pairmill._native, RowError, PyValueError);
create_exception!(pairmill._native, UnknownTagError, PyValueError);
create_exception!(pairmill._native, NoCausalError, PyValueError);
create_exception!(pairmill._native, RowPanic, PyRuntimeError);

impl From<Panic> for PyErr {
    fn from(panic: Panic) -> Self {
        RowPanic::new_err((panic.row, panic.message))
    }
}
