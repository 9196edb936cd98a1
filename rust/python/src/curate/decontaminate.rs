//! Rows that repeat items of benchmarks.

use arrow_array::Array;
use numpy::{PyArray1, PyArrayMethods, PyReadonlyArray1};
use pairmill_core::curate::decontaminate::build::{Builder, MOST_BYTES};
use pairmill_core::curate::decontaminate::index::Index;
use pairmill_core::curate::decontaminate::score::Scorer;
use pairmill_core::guard::{Progress, guarded};
use pyo3::exceptions::{PyIndexError, PyOverflowError, PyValueError};
use pyo3::prelude::*;

use crate::arrow::{column, texts};
use crate::errors::{row_panic, value_error};
use crate::poll::Poll;

/// Makes an index of items.
#[pyclass(module = "pairmill._native")]
pub(crate) struct LeakIndexBuilder {
    builder: Builder,
    most: u64,
    items: usize,
}

#[pymethods]
impl LeakIndexBuilder {
    #[new]
    #[pyo3(signature = (most = MOST_BYTES))]
    fn new(most: u64) -> Self {
        Self { builder: Builder::new(most), most, items: 0 }
    }

    fn __len__(&self) -> usize {
        self.items
    }

    fn add(
        &mut self,
        py: Python<'_>,
        benchmark: &str,
        items: &Bound<'_, PyAny>,
        questions: &Bound<'_, PyAny>,
        answers: &Bound<'_, PyAny>,
        answer_counts: PyReadonlyArray1<'_, i64>,
    ) -> PyResult<()> {
        let (items, questions, answers) = (texts(items)?, texts(questions)?, texts(answers)?);
        let counts = answer_counts.as_slice()?;
        let total = counts.iter().try_fold(0_i64, |sum, &count| sum.checked_add(count).filter(|_| count >= 0));
        if items.len() != questions.len() || counts.len() != items.len() || total != i64::try_from(answers.len()).ok() {
            let (names, many, given) = (items.len(), questions.len(), answers.len());
            let message = format!(
                "got {names} names, {many} questions, {} counts and {given} answers; expected one of each for an item, \
                 and as many answers as are counted",
                counts.len()
            );
            return Err(PyValueError::new_err(message));
        }
        let Self { builder, items: added, .. } = self;
        py.detach(|| {
            let mut poll = Poll::new();
            let mut answers = answers.iter().flatten();
            for ((name, question), &count) in items.iter().flatten().zip(questions.iter().flatten()).zip(counts) {
                let mine = answers.by_ref().take(count as usize);
                builder
                    .add(benchmark, name, question, mine)
                    .map_err(|error| PyOverflowError::new_err(error.to_string()))?;
                *added += 1;
                poll.check()?;
            }
            Ok(())
        })
    }

    fn finish<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<u8>>> {
        let builder = std::mem::replace(&mut self.builder, Builder::new(self.most));
        self.items = 0;
        let bytes = py.detach(|| builder.finish()).map_err(|error| PyOverflowError::new_err(error.to_string()))?;
        Ok(PyArray1::from_vec(py, bytes))
    }
}

/// An index of items, mapped or not.
#[pyclass(frozen, module = "pairmill._native")]
pub(crate) struct LeakIndex(Py<PyArray1<u8>>);

/// Row, item, verdict, field, share of the question and of the answer, window from and to; what was not looked at.
type Hits<'py> = (
    Bound<'py, PyArray1<u32>>,
    Bound<'py, PyArray1<u32>>,
    Bound<'py, PyArray1<u8>>,
    Bound<'py, PyArray1<u8>>,
    Bound<'py, PyArray1<f64>>,
    Bound<'py, PyArray1<f64>>,
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<i64>>,
    u64,
);

#[pymethods]
impl LeakIndex {
    #[new]
    fn new(data: PyReadonlyArray1<'_, u8>, py: Python<'_>) -> PyResult<Self> {
        let bytes = data.as_slice()?;
        py.detach(|| Index::checked(bytes).map(|_| ())).map_err(value_error)?;
        Ok(Self(data.as_unbound().clone_ref(py)))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, |index| index.items())
    }

    #[getter]
    fn benchmarks(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.with(py, |index| index.benchmarks().into_iter().map(str::to_owned).collect())
    }

    fn item(&self, py: Python<'_>, number: u32) -> PyResult<(String, String)> {
        let found = self.with(py, |index| {
            let (benchmark, name) = index.item(number);
            let benchmark = index.benchmarks().get(benchmark as usize).copied().unwrap_or_default().to_owned();
            ((number as usize) < index.items()).then(|| (benchmark, name.to_owned()))
        })?;
        found.ok_or_else(|| PyIndexError::new_err(format!("got item {number}, which the index does not have")))
    }

    fn score<'py>(
        &self,
        py: Python<'py>,
        instruction: &Bound<'py, PyAny>,
        response: &Bound<'py, PyAny>,
    ) -> PyResult<Hits<'py>> {
        let (instruction, response) = (column(instruction, "instruction")?, column(response, "response")?);
        if instruction.len() != response.len() {
            let message = format!("got {} instructions and {} responses", instruction.len(), response.len());
            return Err(PyValueError::new_err(message));
        }
        let data = self.0.bind(py).try_readonly().map_err(value_error)?;
        let index = Index::new(data.as_slice()?).map_err(value_error)?;
        let progress = Progress::default();
        let (found, unscored) = py.detach(|| {
            let score = || -> PyResult<_> {
                let (mut scorer, mut poll) = (Scorer::default(), Poll::new());
                let (mut hits, mut found) = (Vec::new(), Vec::new());
                for row in 0..instruction.len() {
                    progress.begin(row);
                    scorer.row(index, instruction.value(row), response.value(row), &mut hits);
                    found.extend(hits.iter().map(|&hit| (row as u32, hit)));
                    poll.check()?;
                }
                Ok((found, scorer.unscored))
            };
            guarded(&progress, score).map_err(row_panic)?
        })?;
        let window = |end: fn((u32, u32)) -> u32| {
            PyArray1::from_iter(py, found.iter().map(|(_, hit)| hit.window.map_or(-1, |window| i64::from(end(window)))))
        };
        Ok((
            PyArray1::from_iter(py, found.iter().map(|&(row, _)| row)),
            PyArray1::from_iter(py, found.iter().map(|(_, hit)| hit.item)),
            PyArray1::from_iter(py, found.iter().map(|(_, hit)| hit.verdict as u8)),
            PyArray1::from_iter(py, found.iter().map(|(_, hit)| hit.field as u8)),
            PyArray1::from_iter(py, found.iter().map(|(_, hit)| hit.question)),
            PyArray1::from_iter(py, found.iter().map(|(_, hit)| hit.answer)),
            window(|(from, _)| from),
            window(|(_, to)| to),
            unscored,
        ))
    }
}

impl LeakIndex {
    fn with<T>(&self, py: Python<'_>, read: impl FnOnce(Index<'_>) -> T) -> PyResult<T> {
        let data = self.0.bind(py).try_readonly().map_err(value_error)?;
        Ok(read(Index::new(data.as_slice()?).map_err(value_error)?))
    }
}
