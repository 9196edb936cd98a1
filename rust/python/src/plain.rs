//! Rows of plain records, out of lines of JSON and out of Arrow batches.

use std::collections::HashMap;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, GenericListArray, LargeStringArray, OffsetSizeTrait, StringArray, StructArray};
use arrow_buffer::{Buffer, OffsetBuffer};
use arrow_schema::{DataType, Fields};
use numpy::PyArray1;
use pairmill_core::plain::{ChatForm, Form, Role, Rows, Texts, write_json};
use pairmill_core::plain_json;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};

use crate::arrow::{self, ArrowArray};
use crate::errors::value_error;

/// Where the texts of plain records are, and the condition of their rows.
#[pyclass(frozen, module = "pairmill._native")]
pub(crate) struct RowForm {
    form: Form,
    condition: String,
}

#[pymethods]
impl RowForm {
    #[staticmethod]
    fn pair(condition: String, instruction: Option<String>, response: String, strip: bool) -> Self {
        Self { form: Form::Pair { instruction, response, strip }, condition }
    }

    #[staticmethod]
    fn chat(
        condition: String,
        turns: String,
        role: Vec<String>,
        content: Vec<String>,
        meanings: HashMap<String, String>,
        beside: [Vec<String>; 2],
    ) -> Self {
        let meaning = |(name, meaning): (String, String)| {
            let known = [("system", Role::System), ("user", Role::User), ("assistant", Role::Assistant)];
            known.iter().find(|(word, _)| *word == meaning).map(|&(_, role)| (name, role))
        };
        let [beside_turns, beside] = beside;
        let meanings = meanings.into_iter().filter_map(meaning).collect();
        Self { form: Form::Chat(ChatForm { turns, role, content, meanings, beside, beside_turns }), condition }
    }

    /// The rows of the plain records at the beginning of whole lines.
    fn lines(&self, py: Python<'_>, data: &[u8], start: usize, longest: usize) -> PyResult<MadeRows> {
        let data = data.get(start..).ok_or_else(|| value_error(format!("got a start of {start}, beyond the data")))?;
        let (rows, taken) = py.detach(|| {
            let mut rows = Rows::default();
            let taken = plain_json::take(data, longest, &self.form, &mut rows);
            (rows, taken)
        });
        Ok(MadeRows::new(rows, &self.condition, taken.bytes, taken.lines, taken.stopped))
    }

    /// Instructions and responses of a plain chat; characters of the former, of those that a longer one has too, and of
    /// the latter; and whether it ends with a question. None of any other record.
    fn chat_rows(&self, record: &Bound<'_, PyAny>) -> Option<(Vec<[String; 2]>, [usize; 3], bool)> {
        let Form::Chat(form) = &self.form else { return None };
        let messages = messages_of(record, form)?;
        let mut rows = Rows::default();
        let messages = messages.iter().map(|(role, text)| Some((*role, text.to_str().ok()?)));
        if !rows.add_chat(0, messages) {
            return None;
        }
        let sums = [&rows.instruction, &rows.response].map(|texts| texts.lengths.iter().sum());
        let texts =
            rows.instruction.iter().zip(rows.response.iter()).map(|pair| <[_; 2]>::from(pair).map(str::to_owned));
        Some((texts.collect(), [sums[0], rows.repeated, sums[1]], rows.unanswered > 0))
    }

    /// A batch to take rows from; None if its columns are not texts and messages of plain fields, in UTF-8.
    fn open(slf: Bound<'_, Self>, batch: &Bound<'_, PyAny>) -> PyResult<Option<PlainBatch>> {
        let Some(batch) = arrow::batch(batch)? else { return Ok(None) };
        let columns = Columns::new(&batch, &slf.get().form);
        Ok(columns.map(|columns| PlainBatch { form: slf.unbind(), columns, records: batch.len() }))
    }
}

/// The roles and texts of the messages of a record in Python, if they are plain.
fn messages_of<'py>(record: &Bound<'py, PyAny>, form: &ChatForm) -> Option<Vec<(Role, Bound<'py, PyString>)>> {
    let record = record.cast::<PyDict>().ok()?;
    for name in &form.beside_turns {
        if record.get_item(name).ok()?.is_some_and(|value| !value.is_none()) {
            return None;
        }
    }
    let turns = record.get_item(&form.turns).ok()??;
    let place = |names: &[String], key: &str| names.iter().position(|name| name == key);
    let message = |message: Bound<'py, PyAny>| {
        let (mut role, mut content) = (None, None);
        for (key, value) in message.cast::<PyDict>().ok()? {
            let key = key.cast::<PyString>().ok()?;
            let key = key.to_str().ok()?;
            if value.is_none() {
                continue;
            }
            if form.beside.iter().any(|name| name == key) {
                return None;
            }
            for (names, first) in [(&form.role, &mut role), (&form.content, &mut content)] {
                if let Some(at) = place(names, key) {
                    let first = first.get_or_insert((at, value.clone()));
                    if at < first.0 {
                        *first = (at, value.clone());
                    }
                }
            }
        }
        let role = role?.1.cast_into::<PyString>().ok()?;
        let content = content?.1.cast_into::<PyString>().ok()?;
        Some((*form.meanings.get(role.to_str().ok()?)?, content))
    };
    turns.cast::<PyList>().ok()?.iter().map(message).collect()
}

/// A batch of records with plain columns.
#[pyclass(frozen, module = "pairmill._native")]
pub(crate) struct PlainBatch {
    form: Py<RowForm>,
    columns: Columns,
    records: usize,
}

#[pymethods]
impl PlainBatch {
    /// The rows of the plain records from one record on.
    fn take(&self, py: Python<'_>, start: usize) -> MadeRows {
        let RowForm { form, condition } = self.form.get();
        let (rows, stopped) = py.detach(|| {
            let mut rows = Rows::default();
            let plain = (start..self.records)
                .take_while(|record| {
                    let place = (record - start) as i64;
                    !rows.is_full() && self.columns.add(*record, place, form, &mut rows)
                })
                .count();
            let stopped = start + plain < self.records && !rows.is_full();
            (rows, stopped)
        });
        let records = rows.records;
        MadeRows::new(rows, condition, records, records, stopped)
    }
}

/// Rows of consecutive plain records.
#[pyclass(frozen, module = "pairmill._native")]
pub(crate) struct MadeRows {
    rows: Rows,
    condition: String,
    #[pyo3(get)]
    end: usize,
    #[pyo3(get)]
    places: usize,
    #[pyo3(get)]
    stopped: bool,
}

impl MadeRows {
    fn new(rows: Rows, condition: &str, end: usize, places: usize, stopped: bool) -> Self {
        Self { rows, condition: condition.to_owned(), end, places, stopped }
    }
}

#[pymethods]
impl MadeRows {
    #[getter]
    fn records(&self) -> usize {
        self.rows.records
    }

    #[getter]
    fn repeated(&self) -> usize {
        self.rows.repeated
    }

    #[getter]
    fn unanswered(&self) -> usize {
        self.rows.unanswered
    }

    fn __len__(&self) -> usize {
        self.rows.places.len()
    }

    /// Condition, instruction and response.
    fn columns(&self) -> PyResult<[ArrowArray; 3]> {
        let conditions = std::iter::repeat_n(&self.condition, self.rows.places.len());
        let conditions = ArrowArray::new(&StringArray::from_iter_values(conditions));
        Ok([conditions, array(&self.rows.instruction)?, array(&self.rows.response)?])
    }

    /// Of each row the place of its record.
    fn row_places<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        PyArray1::from_slice(py, &self.rows.places)
    }

    /// Characters of instructions and of responses.
    fn lengths<'py>(&self, py: Python<'py>) -> [Bound<'py, PyArray1<i64>>; 2] {
        let texts = [&self.rows.instruction, &self.rows.response];
        texts.map(|texts| PyArray1::from_iter(py, texts.lengths.iter().map(|&length| length as i64)))
    }

    /// Counts of instructions, and of responses, by the bits of their lengths.
    fn bits(&self) -> [Vec<i64>; 2] {
        [&self.rows.instruction, &self.rows.response].map(|texts| texts.bits().to_vec())
    }
}

fn array(texts: &Texts) -> PyResult<ArrowArray> {
    let offsets = std::iter::once(0).chain(texts.ends.iter().copied()).map(i32::try_from);
    let offsets = OffsetBuffer::new(offsets.collect::<Result<Vec<_>, _>>().map_err(value_error)?.into());
    let values = Buffer::from(texts.data.as_bytes());
    Ok(ArrowArray::new(&StringArray::try_new(offsets, values, None).map_err(value_error)?))
}

/// Columns of equally many texts as JSON Lines.
#[pyfunction]
pub(crate) fn json_lines<'py>(
    py: Python<'py>,
    names: Vec<String>,
    columns: Vec<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let columns: Vec<LargeStringArray> = columns.iter().map(arrow::texts).collect::<PyResult<_>>()?;
    let rows = columns.first().map_or(0, Array::len);
    if columns.len() != names.len() || columns.iter().any(|column| column.len() != rows) {
        return Err(value_error("got columns of several lengths, or another number of names; expected as many"));
    }
    let lines = py.detach(|| {
        let bytes: usize = columns.iter().map(arrow::text_bytes).sum();
        let mut lines = Vec::with_capacity(bytes + bytes / 16 + rows * 48);
        write_json(&mut lines, &names, (0..rows).flat_map(|row| columns.iter().map(move |column| column.value(row))));
        lines
    });
    Ok(PyBytes::new(py, &lines))
}

/// Texts of a column; None where another value is.
enum Values {
    Absent,
    Small(StringArray),
    Large(LargeStringArray),
    Others(ArrayRef),
}

impl Values {
    fn new(column: Option<&ArrayRef>) -> Self {
        match column {
            None => Self::Absent,
            Some(column) => match column.data_type() {
                DataType::Null => Self::Absent,
                DataType::Utf8 => Self::Small(column.as_string::<i32>().clone()),
                DataType::LargeUtf8 => Self::Large(column.as_string::<i64>().clone()),
                _ => Self::Others(column.clone()),
            },
        }
    }

    fn is_null(&self, row: usize) -> bool {
        match self {
            Self::Absent => true,
            Self::Small(column) => column.is_null(row),
            Self::Large(column) => column.is_null(row),
            Self::Others(column) => column.is_null(row),
        }
    }

    fn text(&self, row: usize) -> Option<&str> {
        match self {
            Self::Small(column) => column.is_valid(row).then(|| column.value(row)),
            Self::Large(column) => column.is_valid(row).then(|| column.value(row)),
            Self::Absent | Self::Others(_) => None,
        }
    }
}

/// The columns that a form reads.
enum Columns {
    Pair(Option<Values>, Values),
    Chat { starts: Vec<usize>, is_null: Vec<bool>, messages: Messages, beside: Vec<Values> },
}

struct Messages {
    array: StructArray,
    role: Vec<Values>,
    content: Vec<Values>,
    beside: Vec<Values>,
}

impl Columns {
    fn new(batch: &StructArray, form: &Form) -> Option<Self> {
        if !are_plain(batch.fields()) {
            return None;
        }
        let values = |name: &String| Values::new(batch.column_by_name(name));
        let form = match form {
            Form::Pair { instruction, response, .. } => {
                return Some(Self::Pair(instruction.as_ref().map(values), values(response)));
            }
            Form::Chat(form) => form,
        };
        let turns = batch.column_by_name(&form.turns)?;
        let (starts, messages) = match turns.data_type() {
            DataType::List(_) => messages(turns.as_list::<i32>())?,
            DataType::LargeList(_) => messages(turns.as_list::<i64>())?,
            _ => return None,
        };
        let below = |names: &[String]| names.iter().map(|name| Values::new(messages.column_by_name(name))).collect();
        Some(Self::Chat {
            starts,
            is_null: (0..turns.len()).map(|row| turns.is_null(row)).collect(),
            messages: Messages {
                role: below(&form.role),
                content: below(&form.content),
                beside: below(&form.beside),
                array: messages,
            },
            beside: form.beside_turns.iter().map(values).collect(),
        })
    }

    fn add(&self, record: usize, place: i64, form: &Form, rows: &mut Rows) -> bool {
        match (self, form) {
            (Self::Pair(instruction, response), Form::Pair { strip, .. }) => {
                let asked = instruction.as_ref().map(|values| values.text(record));
                let (Some(answer), None | Some(Some(_))) = (response.text(record), asked) else { return false };
                rows.add_pair(place, asked.flatten(), answer, *strip)
            }
            (Self::Chat { starts, is_null, messages, beside }, Form::Chat(form)) => {
                if is_null[record] || !beside.iter().all(|values| values.is_null(record)) {
                    return false;
                }
                rows.add_chat(place, (starts[record]..starts[record + 1]).map(|at| messages.at(at, form)))
            }
            _ => false,
        }
    }
}

impl Messages {
    /// The role and the text of a message, if it is plain.
    fn at(&self, at: usize, form: &ChatForm) -> Option<(Role, &str)> {
        if self.array.is_null(at) || !self.beside.iter().all(|values| values.is_null(at)) {
            return None;
        }
        let first = |values: &[Values]| -> Option<usize> { values.iter().position(|values| !values.is_null(at)) };
        let role = self.role[first(&self.role)?].text(at)?;
        Some((*form.meanings.get(role)?, self.content[first(&self.content)?].text(at)?))
    }
}

fn messages<O: OffsetSizeTrait>(list: &GenericListArray<O>) -> Option<(Vec<usize>, StructArray)> {
    let starts = list.value_offsets().iter().map(|offset| offset.as_usize()).collect();
    Some((starts, list.values().as_struct_opt()?.clone()))
}

/// Whether Python reads every value of these fields as it is, each under a name of its own.
fn are_plain(fields: &Fields) -> bool {
    let names: std::collections::HashSet<_> = fields.iter().map(|field| field.name()).collect();
    names.len() == fields.len() && fields.iter().all(|field| is_plain(field.data_type()))
}

fn is_plain(kind: &DataType) -> bool {
    match kind {
        DataType::Null | DataType::Boolean | DataType::Utf8 | DataType::LargeUtf8 | DataType::Float64 => true,
        DataType::List(field) | DataType::LargeList(field) => is_plain(field.data_type()),
        DataType::Struct(fields) => are_plain(fields),
        other => other.is_integer(),
    }
}
