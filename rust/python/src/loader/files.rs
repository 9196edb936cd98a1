//! Token ids in the files of tasks, read where they lie.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use pairmill_core::loader::numbers::{Kind, Numbers};
use pairmill_core::loader::prefixlm::Ids;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

/// Files that are open at the same time, of the tens of thousands that there may be.
const OPEN: usize = 256;

/// Files of token ids that together are one array.
#[pyclass(frozen, module = "pairmill._native")]
pub(crate) struct TokenFiles {
    files: Vec<Stored>,
    ends: Vec<u64>,
    open: Mutex<HashMap<usize, Arc<File>>>,
}

struct Stored {
    path: PathBuf,
    offset: u64,
    kind: Kind,
}

#[pymethods]
impl TokenFiles {
    /// `files`: path, the byte of the first id, the type of ids, how many there are.
    #[new]
    fn new(files: Vec<(PathBuf, u64, String, u64)>) -> PyResult<Self> {
        let (mut total, mut ends) = (0_u64, Vec::with_capacity(files.len()));
        let files = files.into_iter().map(|(path, offset, kind, count)| {
            total = total.checked_add(count).filter(|&total| total < 1 << 60)?;
            ends.push(total);
            let kind = Kind::parse(&kind).filter(|kind| !matches!(kind, Kind::F4 | Kind::F8))?;
            (offset < 1 << 60).then_some(Stored { path, offset, kind })
        });
        let files = files.collect::<Option<Vec<_>>>();
        let files = files.ok_or_else(|| PyValueError::new_err("got a file of ids that is not valid"))?;
        Ok(Self { files, ends, open: Mutex::default() })
    }

    fn __len__(&self) -> usize {
        self.ends.last().map_or(0, |&end| end as usize)
    }
}

impl TokenFiles {
    fn file(&self, number: usize) -> io::Result<Arc<File>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = open.get(&number) {
            return Ok(Arc::clone(file));
        }
        if open.len() >= OPEN {
            open.clear();
        }
        let file = Arc::new(File::open(&self.files[number].path)?);
        open.insert(number, Arc::clone(&file));
        Ok(file)
    }

    pub(crate) fn reading(&self) -> Reading<'_> {
        Reading { files: self, failed: RefCell::new(None) }
    }
}

/// A read of some rows.
pub(crate) struct Reading<'a> {
    files: &'a TokenFiles,
    failed: RefCell<Option<(usize, io::Error)>>,
}

impl Reading<'_> {
    /// Why a cast failed, if a file could not be read.
    pub(crate) fn failure(self) -> Option<PyErr> {
        let (number, error) = self.failed.into_inner()?;
        let path = self.files.files[number].path.clone();
        Some(PyOSError::new_err((error.raw_os_error().unwrap_or_default(), error.to_string(), path)))
    }

    fn read(&self, number: usize, start: u64, out: &mut [i32]) -> io::Result<bool> {
        let stored = &self.files.files[number];
        let width = stored.kind.width() as u64;
        let mut bytes = vec![0; out.len() * width as usize];
        self.files.file(number)?.read_exact_at(&mut bytes, stored.offset + start * width)?;
        Ok(Numbers::new(&bytes, stored.kind).cast(0, out))
    }
}

impl Ids for Reading<'_> {
    fn cast(&self, start: usize, out: &mut [i32]) -> bool {
        let (start, length) = (start as u64, out.len() as u64);
        let number = self.files.ends.partition_point(|&end| end <= start);
        // A row lies in one file.
        if self.files.ends.get(number).is_none_or(|&end| length > end - start) {
            return false;
        }
        let before = number.checked_sub(1).map_or(0, |number| self.files.ends[number]);
        self.read(number, start - before, out).unwrap_or_else(|error| {
            *self.failed.borrow_mut() = Some((number, error));
            false
        })
    }
}
