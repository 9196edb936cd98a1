//! Near duplicates.

use arrow_array::Array as _;
use numpy::{
    IntoPyArray, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2, PyUntypedArrayMethods,
};
use pairmill_core::curate::near::buckets::candidates;
use pairmill_core::curate::near::refine::Refiner;
use pairmill_core::curate::near::resolve::resolve;
use pairmill_core::curate::near::signature::Signer;
use pairmill_core::curate::near::sketch::{Maker, Sketch};
use pairmill_core::curate::near::verify::{Row, Rule, verify};
use pairmill_core::curate::near::{Fields, NumberGuard, Settings};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::arrow::{column, text_bytes};
use crate::errors::value_error;
use crate::poll::{Poll, watched};

/// Tokens and bands that a setting may ask for, at most.
const LARGEST: usize = 1 << 16;
/// Permutations of a signature, at most.
const LONGEST: usize = 1 << 12;

/// What near deduplication compares, and how it looks for candidates.
#[pyclass(frozen, module = "pairmill._native")]
pub(crate) struct NearSettings(Settings);

#[pymethods]
impl NearSettings {
    #[new]
    #[pyo3(signature = (*, fields="pair", number_guard="both", min_response=20, min_instruction=16, bands=32, rows=4,
        document_bands=20, document_rows=5, jaccard=0.8, containment=0.9, keep=1, follow=true))]
    // As many as there are settings, and each is given by name.
    #[allow(clippy::too_many_arguments)]
    fn new(
        fields: &str,
        number_guard: &str,
        min_response: usize,
        min_instruction: usize,
        bands: usize,
        rows: usize,
        document_bands: usize,
        document_rows: usize,
        jaccard: f64,
        containment: f64,
        keep: usize,
        follow: bool,
    ) -> PyResult<Self> {
        let fields = Fields::parse(fields).ok_or_else(|| {
            value_error(format!("fields: got {fields:?}; expected \"pair\", \"instruction\" or \"response\""))
        })?;
        let number_guard = NumberGuard::parse(number_guard).ok_or_else(|| {
            value_error(format!("number_guard: got {number_guard:?}; expected \"both\", \"instruction\" or \"off\""))
        })?;
        for (name, got) in [("min_response", min_response), ("min_instruction", min_instruction)] {
            if got > LARGEST {
                return Err(value_error(format!("{name}: got {got}; expected at most {LARGEST}")));
            }
        }
        for (name, bands, rows) in [("bands", bands, rows), ("document_bands", document_bands, document_rows)] {
            if bands == 0 || rows == 0 || bands.checked_mul(rows).is_none_or(|all| all > LONGEST) {
                let message =
                    format!("{name}: got {bands} of {rows} rows; expected 1 or more, in all at most {LONGEST}");
                return Err(value_error(message));
            }
        }
        for (name, got) in [("jaccard", jaccard), ("containment", containment)] {
            if !(got > 0.0 && got <= 1.0) {
                return Err(value_error(format!("{name}: got {got}; expected more than 0 and at most 1")));
            }
        }
        if keep == 0 {
            return Err(value_error("keep: got 0; expected 1 or more"));
        }
        Ok(Self(Settings {
            fields,
            number_guard,
            min_response,
            min_instruction,
            bands,
            rows,
            document_bands,
            document_rows,
            jaccard,
            containment,
            keep,
            follow,
        }))
    }
}

/// The names of the rules, by number.
#[pyfunction]
pub(crate) fn curate_near_rules() -> Vec<&'static str> {
    Rule::ALL.map(Rule::name).to_vec()
}

type Array<'py, T> = Bound<'py, PyArray1<T>>;
type Sketches<'py> = (Array<'py, u64>, Array<'py, u8>, Array<'py, u64>, Array<'py, u32>, Array<'py, u32>);

/// The sketches of rows, one after another, and their keys.
#[derive(Default)]
struct Made {
    offsets: Vec<u64>,
    data: Vec<u8>,
    keys: Vec<u64>,
    key_rows: Vec<u32>,
    tokens: Vec<u32>,
}

/// Sketches and keys of rows.
#[pyfunction]
#[pyo3(signature = (instruction, response, settings, condition=None))]
pub(crate) fn curate_sketches<'py>(
    py: Python<'py>,
    instruction: &Bound<'py, PyAny>,
    response: &Bound<'py, PyAny>,
    settings: &NearSettings,
    condition: Option<&Bound<'py, PyAny>>,
) -> PyResult<Sketches<'py>> {
    let (instruction, response) = (column(instruction, "instruction")?, column(response, "response")?);
    let condition = condition.map(|condition| column(condition, "condition")).transpose()?;
    let rows = instruction.len();
    if response.len() != rows || condition.as_ref().is_some_and(|condition| condition.len() != rows) {
        let conditions = condition.as_ref().map_or(String::new(), |texts| format!(" and {} conditions", texts.len()));
        let message = format!("got {rows} instructions, {} responses{conditions}", response.len());
        return Err(value_error(format!("{message}; expected as many of each")));
    }
    if u32::try_from(rows).is_err() {
        return Err(value_error(format!("got {rows} rows; expected fewer than 2^32")));
    }
    let bytes = text_bytes(&instruction) + text_bytes(&response);
    let settings = settings.0.clone();
    let made = watched(py, (instruction, response, condition), bytes, move |input, progress| {
        let (instruction, response, condition) = input;
        let mut made = Made { offsets: vec![0], ..Made::default() };
        let (mut maker, mut signer) = (Maker::default(), Signer::new(&settings));
        for row in 0..instruction.len() {
            if !progress.begin(row) {
                break;
            }
            let start = made.data.len();
            maker.push(instruction.value(row), response.value(row), &settings, &mut made.data);
            made.offsets.push(made.data.len() as u64);
            made.tokens.push(maker.response_tokens() as u32);
            let condition = condition.as_ref().map(|condition| condition.value(row));
            // What was made just now can be read.
            if let Ok(sketch) = Sketch::read(&made.data[start..]) {
                signer.keys(&sketch, condition, &mut made.keys);
            }
            made.key_rows.resize(made.keys.len(), row as u32);
        }
        made
    })?;
    Ok((
        made.offsets.into_pyarray(py),
        made.data.into_pyarray(py),
        made.keys.into_pyarray(py),
        made.key_rows.into_pyarray(py),
        made.tokens.into_pyarray(py),
    ))
}

/// Looks for signals between rows, and keeps what a handler raised.
struct Watch {
    poll: Poll,
    raised: Option<PyErr>,
    calls: u32,
}

impl Watch {
    fn new() -> Self {
        Self { poll: Poll::new(), raised: None, calls: 0 }
    }

    fn alive(&mut self) -> bool {
        self.calls = self.calls.wrapping_add(1);
        if self.raised.is_none() && self.calls.is_multiple_of(64) {
            self.raised = self.poll.check().err();
        }
        self.raised.is_none()
    }

    fn end<T>(self, value: T) -> PyResult<T> {
        self.raised.map_or(Ok(value), Err)
    }
}

/// Pairs as an array of two columns.
fn pairs<'py, T: numpy::Element + Copy>(py: Python<'py>, pairs: &[(T, T)]) -> PyResult<Bound<'py, PyArray2<T>>> {
    let flat: Vec<T> = pairs.iter().flat_map(|&(first, second)| [first, second]).collect();
    flat.into_pyarray(py).reshape([pairs.len(), 2])
}

type Buckets<'py> = (Bound<'py, PyArray2<u64>>, Bound<'py, PyArray2<u64>>);

/// Pairs of rows that share a key, and families.
#[pyfunction]
#[pyo3(signature = (keys, ids, fixed, refine = true, keep = 1))]
pub(crate) fn curate_near_buckets<'py>(
    py: Python<'py>,
    keys: PyReadonlyArray1<'py, u64>,
    ids: PyReadonlyArray1<'py, u64>,
    fixed: u64,
    refine: bool,
    keep: usize,
) -> PyResult<Buckets<'py>> {
    let (keys, ids) = (keys.as_slice()?, ids.as_slice()?);
    if keys.len() != ids.len() {
        return Err(value_error(format!("got {} keys and {} ids; expected as many of each", keys.len(), ids.len())));
    }
    let found = py.detach(|| {
        let mut watch = Watch::new();
        let found = candidates(keys, ids, fixed, refine, keep, &mut || watch.alive());
        watch.end(found)
    })?;
    Ok((pairs(py, &found.edges)?, pairs(py, &found.families)?))
}

/// The sketches of rows, of which the bytes are not looked at.
fn sketches<'a>(offsets: &[u64], data: &'a [u8]) -> PyResult<Vec<&'a [u8]>> {
    let rows = offsets.windows(2).enumerate().map(|(row, ends)| {
        let [start, end] = *ends else { return Err(value_error("offsets: none")) };
        data.get(start as usize..end as usize).ok_or_else(|| {
            let bytes = data.len();
            value_error(format!(
                "row {row}: got bytes {start} to {end}; expected ascending offsets within {bytes} bytes"
            ))
        })
    });
    if offsets.is_empty() { Err(value_error("offsets: got none; expected one or more")) } else { rows.collect() }
}

/// Pairs of rows of a family that few others resemble.
#[pyfunction]
pub(crate) fn curate_near_refine<'py>(
    py: Python<'py>,
    offsets: PyReadonlyArray1<'py, u64>,
    data: PyReadonlyArray1<'py, u8>,
    members: PyReadonlyArray1<'py, u32>,
    family_offsets: PyReadonlyArray1<'py, u64>,
    settings: &NearSettings,
) -> PyResult<(Bound<'py, PyArray2<u32>>, usize)> {
    let (offsets, data) = (offsets.as_slice()?, data.as_slice()?);
    let (members, families) = (members.as_slice()?, family_offsets.as_slice()?);
    let (edges, unverified) = py.detach(|| {
        let rows = sketches(offsets, data)?;
        let rows = members.iter().map(|&row| {
            rows.get(row as usize)
                .copied()
                .ok_or_else(|| value_error(format!("members: got row {row}; expected one of {}", rows.len())))
        });
        let rows: Vec<&[u8]> = rows.collect::<PyResult<_>>()?;
        let (mut edges, mut unverified) = (Vec::new(), 0);
        let mut watch = Watch::new();
        let mut refiner = Refiner::new(&settings.0);
        for family in families.windows(2) {
            let [start, end] = *family else { continue };
            let members = rows.get(start as usize..end as usize).ok_or_else(|| {
                let message = format!(
                    "family_offsets: got {start} to {end}; expected ascending ones within {} members",
                    rows.len()
                );
                value_error(message)
            })?;
            let refined = refiner.refine(members, &mut || watch.alive()).map_err(value_error)?;
            // Rows are numbered by 32 bits: there are fewer, as the last edge of each family shows.
            let first = u32::try_from(start).map_err(value_error)?;
            edges.extend(refined.edges.iter().map(|&(a, b)| (first + a, first + b)));
            unverified += refined.unverified;
        }
        watch.end((edges, unverified))
    })?;
    Ok((pairs(py, &edges)?, unverified))
}

type Findings<'py> = (Array<'py, u32>, Array<'py, u32>, Array<'py, u8>, Array<'py, f64>, Array<'py, f64>, u64);

/// Decide about rows.
#[pyfunction]
// Two arrays for the sketches, three for the rows and pairs.
#[allow(clippy::too_many_arguments)]
pub(crate) fn curate_near_resolve<'py>(
    py: Python<'py>,
    offsets: PyReadonlyArray1<'py, u64>,
    data: PyReadonlyArray1<'py, u8>,
    order: PyReadonlyArray1<'py, u32>,
    fixed: PyReadonlyArray1<'py, bool>,
    edges: PyReadonlyArray2<'py, u32>,
    settings: &NearSettings,
) -> PyResult<Findings<'py>> {
    let (offsets, data, order) = (offsets.as_slice()?, data.as_slice()?, order.as_slice()?);
    let (fixed, columns, edges) = (fixed.as_slice()?, edges.shape()[1], edges.as_slice()?);
    if columns != 2 {
        return Err(value_error(format!("edges: got {columns} columns; expected 2")));
    }
    let found = py.detach(|| {
        let rows = sketches(offsets, data)?;
        if order.len() != rows.len() || fixed.len() != rows.len() {
            let message = format!("got {} rows, {} in order and {} fixed or not", rows.len(), order.len(), fixed.len());
            return Err(value_error(format!("{message}; expected as many of each")));
        }
        let mut seen = vec![false; rows.len()];
        for &row in order {
            match seen.get_mut(row as usize) {
                Some(seen) if !*seen => *seen = true,
                _ => return Err(value_error(format!("order: got row {row} twice, or of {} rows", rows.len()))),
            }
        }
        let edges: Vec<(u32, u32)> = edges.as_chunks().0.iter().map(|&[a, b]| (a, b)).collect();
        if let Some((a, b)) = edges.iter().find(|(a, b)| *a.max(b) as usize >= rows.len()) {
            return Err(value_error(format!("edges: got rows {a} and {b} of {} rows", rows.len())));
        }
        let mut watch = Watch::new();
        let found = resolve(&rows, order, fixed, &edges, &settings.0, &mut || watch.alive()).map_err(value_error)?;
        watch.end(found)
    })?;
    let findings = &found.findings;
    Ok((
        PyArray1::from_iter(py, findings.iter().map(|finding| finding.row)),
        PyArray1::from_iter(py, findings.iter().map(|finding| finding.other)),
        PyArray1::from_iter(py, findings.iter().map(|finding| finding.rule as u8)),
        PyArray1::from_iter(py, findings.iter().map(|finding| finding.instruction)),
        PyArray1::from_iter(py, findings.iter().map(|finding| finding.response)),
        found.verifications,
    ))
}

type Verdicts<'py> = (Array<'py, bool>, Array<'py, u8>, Array<'py, f64>, Array<'py, f64>);

/// Compare rows one by one.
#[pyfunction]
pub(crate) fn curate_verify<'py>(
    py: Python<'py>,
    instruction_a: &Bound<'py, PyAny>,
    response_a: &Bound<'py, PyAny>,
    instruction_b: &Bound<'py, PyAny>,
    response_b: &Bound<'py, PyAny>,
    settings: &NearSettings,
) -> PyResult<Verdicts<'py>> {
    let columns = [
        column(instruction_a, "instruction_a")?,
        column(response_a, "response_a")?,
        column(instruction_b, "instruction_b")?,
        column(response_b, "response_b")?,
    ];
    let lengths = columns.each_ref().map(|column| column.len());
    if lengths.iter().any(|length| *length != lengths[0]) {
        return Err(PyValueError::new_err(format!("got columns of {lengths:?} rows; expected as many in each")));
    }
    let bytes = columns.iter().map(text_bytes).sum();
    let settings = settings.0.clone();
    let verdicts = watched(py, columns, bytes, move |columns, progress| {
        let [instruction_a, response_a, instruction_b, response_b] = columns;
        let mut maker = Maker::default();
        let (mut a, mut b) = (Vec::new(), Vec::new());
        let mut verdicts = Vec::new();
        for row in 0..instruction_a.len() {
            if !progress.begin(row) {
                break;
            }
            a.clear();
            b.clear();
            maker.push(instruction_a.value(row), response_a.value(row), &settings, &mut a);
            maker.push(instruction_b.value(row), response_b.value(row), &settings, &mut b);
            // What was made just now can be read.
            if let (Ok(a), Ok(b)) = (Sketch::read(&a), Sketch::read(&b)) {
                verdicts.push(verify(&Row::new(a), &Row::new(b), &settings));
            }
        }
        verdicts
    })?;
    Ok((
        PyArray1::from_iter(py, verdicts.iter().map(|verdict| verdict.duplicate)),
        PyArray1::from_iter(py, verdicts.iter().map(|verdict| verdict.rule as u8)),
        PyArray1::from_iter(py, verdicts.iter().map(|verdict| verdict.instruction)),
        PyArray1::from_iter(py, verdicts.iter().map(|verdict| verdict.response)),
    ))
}
