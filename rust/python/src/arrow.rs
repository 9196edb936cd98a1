//! Arrow arrays across the border, by the Arrow PyCapsule interface
//! (<https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html>).

#![allow(unsafe_code)]

use std::ffi::CStr;

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi, to_ffi};
use arrow_array::{Array, BinaryArray, Int64Array, LargeBinaryArray, LargeStringArray, StructArray};
use arrow_buffer::OffsetBuffer;
use arrow_data::ArrayData;
use arrow_schema::DataType;
use numpy::{PyArray1, PyArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::errors::{RowError, value_error};

const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";

/// The texts of an array without nulls.
pub(crate) fn texts(object: &Bound<'_, PyAny>) -> PyResult<LargeStringArray> {
    import_texts(object)?.map_err(|NotText { row, error }| {
        value_error(format!("the Arrow array is not valid: row {row} is not UTF-8: {error}"))
    })
}

/// As `texts`, of a column of rows: what is wrong with a row is raised as a `RowError`.
pub(crate) fn column(object: &Bound<'_, PyAny>, name: &str) -> PyResult<LargeStringArray> {
    import_texts(object)?
        .map_err(|NotText { row, error }| RowError::new_err((row, format!("{name} is not UTF-8"), error)))
}

/// The bytes of all texts.
pub(crate) fn text_bytes(texts: &LargeStringArray) -> usize {
    let offsets = texts.value_offsets();
    offsets.first().zip(offsets.last()).map_or(0, |(first, last)| (last - first) as usize)
}

/// The first row that is not UTF-8.
struct NotText {
    row: usize,
    error: String,
}

fn import_texts(object: &Bound<'_, PyAny>) -> PyResult<Result<LargeStringArray, NotText>> {
    let bytes = import_bytes(object, &[DataType::Utf8, DataType::LargeUtf8], "utf8 or large_utf8")?;
    object.py().detach(|| {
        LargeStringArray::try_from_binary(bytes.clone()).map(Ok).or_else(|error| {
            let not_text = |(row, bytes)| {
                let error = std::str::from_utf8(bytes).err()?.to_string();
                Some(NotText { row, error })
            };
            bytes.iter().flatten().enumerate().find_map(not_text).map(Err).ok_or_else(|| invalid(&error))
        })
    })
}

/// Words, any bytes, with their counts, an Arrow array or a one-dimensional NumPy array of int64.
pub(crate) fn counted(words: &Bound<'_, PyAny>, counts: &Bound<'_, PyAny>) -> PyResult<(LargeBinaryArray, Vec<i64>)> {
    let words = import_bytes(words, &[DataType::Binary, DataType::LargeBinary], "binary or large_binary")?;
    let counts = if let Ok(array) = counts.cast::<PyArray1<i64>>() {
        array.to_vec()?
    } else {
        Int64Array::from(import(counts, &[DataType::Int64], "int64")?).values().to_vec()
    };
    if words.len() != counts.len() {
        let message = format!("got {} words and {} counts; expected as many of each", words.len(), counts.len());
        return Err(PyValueError::new_err(message));
    }
    Ok((words, counts))
}

/// An Arrow array made here; `pyarrow.array()` and whatever else takes `__arrow_c_array__` reads it without copying.
#[pyclass(frozen, module = "pairmill._native")]
pub(crate) struct ArrowArray(ArrayData);

impl ArrowArray {
    pub(crate) fn new(array: &impl Array) -> Self {
        Self(array.to_data())
    }
}

#[pymethods]
impl ArrowArray {
    /// The array as two capsules. A requested schema is not looked at, as the interface allows.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let _ = requested_schema;
        let (array, schema) = to_ffi(&self.0).map_err(value_error)?;
        Ok((PyCapsule::new_with_value(py, schema, SCHEMA)?, PyCapsule::new_with_value(py, array, ARRAY)?))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }
}

/// A batch of records; None if it has what cannot be read here, such as texts that are not UTF-8.
pub(crate) fn batch(object: &Bound<'_, PyAny>) -> PyResult<Option<StructArray>> {
    let data = receive(object, |kind| matches!(kind, DataType::Struct(_)), "a record batch")?;
    let valid = object.py().detach(|| data.validate_full()).is_ok();
    Ok(valid.then(|| StructArray::from(data)))
}

/// The array of `object`, checked in full but for UTF-8: of one of `types` (which `names` names) and without nulls. Texts
/// become bytes.
fn import(object: &Bound<'_, PyAny>, types: &[DataType], names: &str) -> PyResult<ArrayData> {
    let data = receive(object, |kind| types.contains(kind), names)?;
    let bytes = match data.data_type() {
        DataType::Utf8 => DataType::Binary,
        DataType::LargeUtf8 => DataType::LargeBinary,
        other => other.clone(),
    };
    let data = data.into_builder().data_type(bytes).build().map_err(|error| invalid(&error))?;
    object.py().detach(|| data.validate_full()).map_err(|error| invalid(&error))?;
    if let Some(nulls) = data.nulls().filter(|nulls| nulls.null_count() > 0) {
        let row = (0..nulls.len()).find(|&row| nulls.is_null(row)).unwrap_or_default();
        let message = format!("row {row} is null ({} of {} are); expected no nulls", nulls.null_count(), data.len());
        return Err(PyValueError::new_err(message));
    }
    Ok(data)
}

/// The array of `object`, unchecked, if its type is accepted; `names` names those that are.
fn receive(object: &Bound<'_, PyAny>, accepts: impl Fn(&DataType) -> bool, names: &str) -> PyResult<ArrayData> {
    let refuse = |got: &str| PyTypeError::new_err(format!("got {got}; expected an Arrow array of {names}"));
    let Some(export) = object.getattr_opt("__arrow_c_array__")? else {
        let kind = object.get_type().fully_qualified_name()?;
        return Err(refuse(&format!("{kind}, which has no __arrow_c_array__")));
    };
    let (schema, array): (Bound<'_, PyCapsule>, Bound<'_, PyCapsule>) = export.call0()?.extract()?;
    let schema = schema.pointer_checked(Some(SCHEMA))?.cast::<FFI_ArrowSchema>();
    let array = array.pointer_checked(Some(ARRAY))?.cast::<FFI_ArrowArray>();

    // SAFETY: capsules of these names hold these structs, says the interface; the schema capsule outlives the
    // reference.
    let schema = unsafe { schema.as_ref() };
    // SAFETY: as above. The struct is moved out and marked as released, so that the capsule does not release it too.
    let array = unsafe { FFI_ArrowArray::from_raw(array.as_ptr()) };
    if schema.release().is_none() || array.is_released() {
        let message = "got an Arrow capsule that was used before; expected a fresh one";
        return Err(PyValueError::new_err(message));
    }
    let data_type = DataType::try_from(schema).map_err(|error| refuse(&error.to_string()))?;
    if !accepts(&data_type) {
        return Err(refuse(&format!("an Arrow array of {data_type}")));
    }
    // SAFETY: the interface makes the producer answer for its pointers and lengths, which nobody can check; all that
    // can be checked is, by the caller, before anything else reads the data.
    unsafe { from_ffi(array, schema) }.map_err(|error| invalid(&error))
}

/// The bytes of the rows, with offsets of 64 bits whatever they had.
fn import_bytes(object: &Bound<'_, PyAny>, types: &[DataType], names: &str) -> PyResult<LargeBinaryArray> {
    let data = import(object, types, names)?;
    if *data.data_type() == DataType::LargeBinary {
        return Ok(data.into());
    }
    let (offsets, values, nulls) = BinaryArray::from(data).into_parts();
    let offsets = offsets.iter().copied().map(i64::from).collect();
    Ok(LargeBinaryArray::new(OffsetBuffer::new(offsets), values, nulls))
}

fn invalid(error: &arrow_schema::ArrowError) -> PyErr {
    value_error(format!("the Arrow array is not valid: {error}"))
}
