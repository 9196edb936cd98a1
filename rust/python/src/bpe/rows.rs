//! Rows to spans.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{Array, LargeStringArray};
use numpy::{PyArray1, PyReadonlyArray1};
use pairmill_core::bpe::rows::{Layout as Core, Part, Spans as Made, UnknownTag};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::arrow::{column, text_bytes};
use crate::bpe::encoder::{Encoder, expected_ids};
use crate::errors::UnknownTagError;
use crate::poll::watched;
use pairmill_core::guard::Progress;

/// Tokens, `inst_start`, `inst_len`, `resp_start`, `resp_len`; and the dropped bytes.
type Spans<'py> = ((Bound<'py, PyArray1<u32>>, Index<'py>, Index<'py>, Index<'py>, Index<'py>), u64);
type Index<'py> = Bound<'py, PyArray1<u64>>;

/// The tokens around the texts of a row.
#[pyclass(frozen, module = "pairmill._native")]
pub(crate) struct Layout(Arc<Core>);

#[pymethods]
impl Layout {
    #[new]
    #[pyo3(signature = (boq, eoq, eoa, tags, *, untagged = false))]
    fn new(boq: u32, eoq: u32, eoa: u32, tags: HashMap<String, u32>, untagged: bool) -> Self {
        Self(Arc::new(Core { boq, eoq, eoa, tags: tags.into_iter().collect(), untagged }))
    }

    /// The spans of rows whose texts `encoder` encodes.
    fn encode<'py>(
        &self,
        py: Python<'py>,
        encoder: &Encoder,
        condition: &Bound<'py, PyAny>,
        instruction: &Bound<'py, PyAny>,
        response: &Bound<'py, PyAny>,
        start: u64,
    ) -> PyResult<Spans<'py>> {
        let condition = column(condition, "condition")?;
        let question = column(instruction, "instruction")?;
        let answer = column(response, "response")?;
        same_length([condition.len(), question.len(), answer.len()])?;
        let bytes = text_bytes(&condition) + text_bytes(&question) + text_bytes(&answer);
        let room = expected_ids(bytes);
        let (layout, shared) = (Arc::clone(&self.0), encoder.shared());
        let made = watched(py, (condition, question, answer), bytes, move |(condition, question, answer), progress| {
            shared.with_cache(|core, cache| {
                spans(&layout, condition, start, room, progress, |row, part, tokens| {
                    let text = if part == Part::Question { question.value(row) } else { answer.value(row) };
                    core.encode(text, cache, tokens)
                })
            })
        });
        finished(py, made?)
    }

    /// The spans of rows whose texts were encoded elsewhere.
    fn join<'py>(
        &self,
        py: Python<'py>,
        condition: &Bound<'py, PyAny>,
        instruction: (Ids<'py>, Offsets<'py>),
        response: (Ids<'py>, Offsets<'py>),
        start: u64,
    ) -> PyResult<Spans<'py>> {
        let condition = column(condition, "condition")?;
        let (question, answer) = (Encoded::import(&instruction)?, Encoded::import(&response)?);
        same_length([condition.len(), question.rows(), answer.rows()])?;
        let room = question.ids.len() + answer.ids.len();
        let layout = Arc::clone(&self.0);
        let bytes = text_bytes(&condition) + room * size_of::<u32>();
        let made = watched(py, (condition, question, answer), bytes, move |(condition, question, answer), progress| {
            spans(&layout, condition, start, room, progress, |row, part, tokens| {
                tokens.extend_from_slice(if part == Part::Question { question.get(row) } else { answer.get(row) });
                0
            })
        });
        finished(py, made?)
    }
}

/// The ids of texts, one after another, and where each text's begin.
struct Encoded {
    ids: Vec<u32>,
    offsets: Vec<usize>,
}

type Ids<'py> = PyReadonlyArray1<'py, u32>;
type Offsets<'py> = PyReadonlyArray1<'py, i64>;

impl Encoded {
    fn import((ids, offsets): &(Ids<'_>, Offsets<'_>)) -> PyResult<Self> {
        let ids = ids.as_array().to_vec();
        let offsets: Vec<usize> = offsets.as_array().iter().map(|&offset| offset as usize).collect();
        let ordered = offsets.is_sorted() && offsets.last().is_some_and(|&last| last <= ids.len());
        if ordered {
            Ok(Self { ids, offsets })
        } else {
            Err(PyValueError::new_err(
                "got offsets that do not ascend, or end after the ids; expected those of the ids",
            ))
        }
    }

    fn rows(&self) -> usize {
        self.offsets.len() - 1
    }

    fn get(&self, row: usize) -> &[u32] {
        &self.ids[self.offsets[row]..self.offsets[row + 1]]
    }
}

/// A tag without a token, in this row.
struct Unknown {
    row: usize,
    tag: String,
}

/// The spans of all rows, or of some if nobody waits for them any more.
fn spans(
    layout: &Core,
    condition: &LargeStringArray,
    start: u64,
    room: usize,
    progress: &Progress,
    mut text: impl FnMut(usize, Part, &mut Vec<u32>) -> u64,
) -> Result<Made, Unknown> {
    // Beside its texts a row has four or five tokens as a rule.
    let mut made = Made::new(start, condition.len(), room + 5 * condition.len());
    for (row, condition) in condition.iter().flatten().enumerate() {
        if !progress.begin(row) {
            break;
        }
        made.push(layout, condition, |part, tokens| text(row, part, tokens))
            .map_err(|UnknownTag(tag)| Unknown { row, tag: tag.to_owned() })?;
    }
    Ok(made)
}

fn finished(py: Python<'_>, made: Result<Made, Unknown>) -> PyResult<Spans<'_>> {
    let made = made.map_err(|Unknown { row, tag }| UnknownTagError::new_err((row, tag)))?;
    let index = |values| PyArray1::from_vec(py, values);
    let tokens = PyArray1::from_vec(py, made.tokens);
    let arrays = (tokens, index(made.inst_start), index(made.inst_len), index(made.resp_start), index(made.resp_len));
    Ok((arrays, made.dropped))
}

fn same_length(lengths: [usize; 3]) -> PyResult<()> {
    if lengths.iter().all(|&length| length == lengths[0]) {
        return Ok(());
    }
    let [condition, instruction, response] = lengths;
    let got = format!("{condition} conditions, {instruction} instructions and {response} responses");
    Err(PyValueError::new_err(format!("got {got}; expected as many of each")))
}
