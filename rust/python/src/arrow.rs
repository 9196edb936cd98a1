//! Arrow arrays across the border, by the Arrow PyCapsule interface
//! (<https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html>).

#![allow(unsafe_code)]

use std::ffi::CStr;

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi, to_ffi};
use arrow_array::{Array, BinaryArray, Int64Array, LargeBinaryArray, LargeStringArray, StringArray};
use arrow_data::ArrayData;
use arrow_schema::DataType;
use numpy::{PyArray1, PyArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::errors::RowError;

const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";

/// An array of texts without nulls.
pub(crate) enum Texts {
    Small(StringArray),
    Large(LargeStringArray),
}

impl Texts {
    pub(crate) fn import(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self::checked(object)?)
    }

    /// As `import`, of a column of rows: what is wrong with a row is said as a `RowError`.
    pub(crate) fn import_column(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Self> {
        Self::checked(object).map_err(|refusal| match refusal {
            Refusal::Row { row, what, got } => RowError::new_err((row, format!("{name} {what}"), got)),
            Refusal::Array(error) => error,
        })
    }

    fn checked(object: &Bound<'_, PyAny>) -> Result<Self, Refusal> {
        let data = import(object, &[DataType::Utf8, DataType::LargeUtf8], "utf8 or large_utf8")?;
        Ok(match data.data_type() {
            DataType::Utf8 => Self::Small(data.into()),
            _ => Self::Large(data.into()),
        })
    }

    pub(crate) fn get(&self, row: usize) -> &str {
        match self {
            Self::Small(array) => array.value(row),
            Self::Large(array) => array.value(row),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Small(array) => array.len(),
            Self::Large(array) => array.len(),
        }
    }

    /// The bytes of all rows.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Small(array) => {
                array.value_offsets().last().zip(array.value_offsets().first()).map_or(0, |(b, a)| (b - a) as usize)
            }
            Self::Large(array) => {
                array.value_offsets().last().zip(array.value_offsets().first()).map_or(0, |(b, a)| (b - a) as usize)
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|row| self.get(row))
    }
}

/// An array of words, any bytes, without nulls.
pub(crate) enum Words {
    Small(BinaryArray),
    Large(LargeBinaryArray),
}

impl Words {
    fn import(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self::of(import(object, &[DataType::Binary, DataType::LargeBinary], "binary or large_binary")?))
    }

    fn of(data: ArrayData) -> Self {
        match data.data_type() {
            DataType::Binary => Self::Small(data.into()),
            _ => Self::Large(data.into()),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Small(array) => array.len(),
            Self::Large(array) => array.len(),
        }
    }

    fn get(&self, row: usize) -> &[u8] {
        match self {
            Self::Small(array) => array.value(row),
            Self::Large(array) => array.value(row),
        }
    }
}

/// Words with their counts.
pub(crate) struct Counted {
    words: Words,
    counts: Vec<i64>,
}

impl Counted {
    /// `counts` is an Arrow array or a one-dimensional NumPy array, of int64.
    pub(crate) fn import(words: &Bound<'_, PyAny>, counts: &Bound<'_, PyAny>) -> PyResult<Self> {
        let words = Words::import(words)?;
        let counts = if let Ok(array) = counts.cast::<PyArray1<i64>>() {
            array.to_vec()?
        } else {
            let array: Int64Array = import(counts, &[DataType::Int64], "int64")?.into();
            array.values().to_vec()
        };
        if words.len() != counts.len() {
            let message = format!("got {} words and {} counts; expected as many of each", words.len(), counts.len());
            return Err(PyValueError::new_err(message));
        }
        Ok(Self { words, counts })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], i64)> + Clone {
        self.counts.iter().enumerate().map(|(row, &count)| (self.words.get(row), count))
    }
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
        let (array, schema) = to_ffi(&self.0).map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok((PyCapsule::new_with_value(py, schema, SCHEMA)?, PyCapsule::new_with_value(py, array, ARRAY)?))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }
}

/// Why an array is not taken.
enum Refusal {
    /// Because of one of its rows.
    Row { row: usize, what: &'static str, got: String },
    /// As a whole.
    Array(PyErr),
}

impl From<PyErr> for Refusal {
    fn from(error: PyErr) -> Self {
        Self::Array(error)
    }
}

impl From<Refusal> for PyErr {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Row { row, what, got } => {
                PyValueError::new_err(format!("the Arrow array is not valid: row {row} {what}: {got}"))
            }
            Refusal::Array(error) => error,
        }
    }
}

/// The array of `object`, checked in full, UTF-8 included: of one of `types` (which `names` names) and without nulls.
fn import(object: &Bound<'_, PyAny>, types: &[DataType], names: &str) -> Result<ArrayData, Refusal> {
    let refuse = |got: &str| PyTypeError::new_err(format!("got {got}; expected an Arrow array of {names}"));
    let Some(export) = object.getattr_opt("__arrow_c_array__")? else {
        let kind = object.get_type().fully_qualified_name()?;
        return Err(refuse(&format!("{kind}, which has no __arrow_c_array__")).into());
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
        return Err(PyValueError::new_err(message).into());
    }
    let data_type = DataType::try_from(schema).map_err(|error| refuse(&error.to_string()))?;
    if !types.contains(&data_type) {
        return Err(refuse(&format!("an Arrow array of {data_type}")).into());
    }
    // SAFETY: the interface makes the producer answer for its pointers and lengths, which nobody can check; all that
    // can be checked is, below, before anything else reads the data.
    let data = unsafe { from_ffi(array, schema) }.map_err(|error| invalid(&error))?;
    object
        .py()
        .detach(|| data.validate_full())
        .map_err(|error| no_text(&data).unwrap_or_else(|| invalid(&error).into()))?;
    if let Some(nulls) = data.nulls().filter(|nulls| nulls.null_count() > 0) {
        let row = (0..nulls.len()).find(|&row| nulls.is_null(row)).unwrap_or_default();
        let message = format!("row {row} is null ({} of {} are); expected no nulls", nulls.null_count(), data.len());
        return Err(PyValueError::new_err(message).into());
    }
    Ok(data)
}

/// The first row that is not UTF-8, of data that is valid as bytes.
fn no_text(data: &ArrayData) -> Option<Refusal> {
    let bytes = match data.data_type() {
        DataType::Utf8 => DataType::Binary,
        DataType::LargeUtf8 => DataType::LargeBinary,
        _ => return None,
    };
    let data = data.clone().into_builder().data_type(bytes).build().ok()?;
    data.validate_full().ok()?;
    let words = Words::of(data);
    (0..words.len()).find_map(|row| {
        let error = std::str::from_utf8(words.get(row)).err()?;
        Some(Refusal::Row { row, what: "is not UTF-8", got: error.to_string() })
    })
}

fn invalid(error: &arrow_schema::ArrowError) -> PyErr {
    PyValueError::new_err(format!("the Arrow array is not valid: {error}"))
}
