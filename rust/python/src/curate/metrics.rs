//! Metrics of texts: a NumPy array for each, one value a row.

use arrow_array::Array;
use numpy::PyArray1;
use pairmill_core::curate::metrics::{ALL, COUNT, Meter, NAMES, PairMeter, is_integer};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arrow::{self, column, text_bytes};
use crate::errors::value_error;
use crate::poll::watched;

/// The metrics of raw texts by name, each with its values: int64 for whole numbers, else float64.
#[pyfunction]
#[pyo3(signature = (texts, which = None))]
pub(crate) fn curate_metrics<'py>(
    py: Python<'py>,
    texts: &Bound<'py, PyAny>,
    which: Option<Vec<String>>,
) -> PyResult<Bound<'py, PyDict>> {
    let texts = arrow::texts(texts)?;
    let wanted = match which {
        None => ALL,
        Some(names) => names.iter().try_fold(0, |wanted, name| {
            let metric = NAMES.iter().position(|known| known == name);
            let metric =
                metric.ok_or_else(|| value_error(format!("{name:?} is not a metric; expected one of {NAMES:?}")))?;
            Ok::<_, PyErr>(wanted | 1 << metric)
        })?,
    };
    let metrics: Vec<_> = (0..COUNT).filter(|metric| wanted >> metric & 1 == 1).collect();
    let chosen = metrics.clone();
    let bytes = text_bytes(&texts);
    let columns = watched(py, texts, bytes, move |texts, progress| {
        let mut columns = vec![Vec::with_capacity(texts.len()); chosen.len()];
        let mut meter = Meter::new(wanted);
        for (_, text) in texts.iter().flatten().enumerate().take_while(|&(row, _)| progress.begin(row)) {
            let values = meter.measure(text);
            for (column, &metric) in columns.iter_mut().zip(&chosen) {
                column.push(values[metric]);
            }
        }
        columns
    })?;
    let named = PyDict::new(py);
    for (metric, values) in metrics.into_iter().zip(columns) {
        if is_integer(metric) {
            let values: Vec<_> = values.into_iter().map(|value: f64| value as i64).collect();
            named.set_item(NAMES[metric], PyArray1::from_vec(py, values))?;
        } else {
            named.set_item(NAMES[metric], PyArray1::from_vec(py, values))?;
        }
    }
    Ok(named)
}

/// The metrics of instructions with their responses, by name: float64, and bool for `same`.
#[pyfunction]
pub(crate) fn curate_pair_metrics<'py>(
    py: Python<'py>,
    instruction: &Bound<'py, PyAny>,
    response: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyDict>> {
    let (instruction, response) = (column(instruction, "instruction")?, column(response, "response")?);
    if instruction.len() != response.len() {
        let message =
            format!("got {} instructions and {} responses; expected as many", instruction.len(), response.len());
        return Err(PyValueError::new_err(message));
    }
    let bytes = text_bytes(&instruction) + text_bytes(&response);
    let (ratio, copy, same) = watched(py, (instruction, response), bytes, |(instruction, response), progress| {
        let mut meter = PairMeter::default();
        let pairs = instruction.iter().flatten().zip(response.iter().flatten()).enumerate();
        let mut columns = (Vec::new(), Vec::new(), Vec::new());
        for (_, (instruction, response)) in pairs.take_while(|&(row, _)| progress.begin(row)) {
            let pair = meter.measure(instruction, response);
            columns.0.push(pair.response_instruction_ratio);
            columns.1.push(pair.copy_ratio);
            columns.2.push(pair.same);
        }
        columns
    })?;
    let named = PyDict::new(py);
    named.set_item("response_instruction_ratio", PyArray1::from_vec(py, ratio))?;
    named.set_item("copy_ratio", PyArray1::from_vec(py, copy))?;
    named.set_item("same", PyArray1::from_vec(py, same))?;
    Ok(named)
}
