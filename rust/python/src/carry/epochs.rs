//! The index arrays of epochs.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError, RwLock};

use numpy::PyReadonlyArray1;
use pairmill_core::descriptor::write_all_at;
use pairmill_core::digest::Hasher;
use pairmill_core::sample::table::{Place, Table};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::carry::{Column, Rows};

/// Where the rows of a plan are in the sampled tokens.
#[pyclass(frozen, module = "pairmill._native")]
pub(crate) struct RowTable(RwLock<Table>);

#[pymethods]
impl RowTable {
    #[new]
    fn new(rows: usize, first: u32, tokens: Option<u64>) -> Self {
        Self(RwLock::new(Table::new(rows, first, tokens)))
    }

    /// Add rows; each at its starts and `base`, if rows lie apart.
    fn add(
        &self,
        py: Python<'_>,
        base: u64,
        inst_start: Column<'_>,
        inst_len: Column<'_>,
        resp_start: Column<'_>,
        resp_len: Column<'_>,
    ) -> PyResult<()> {
        let columns = [inst_start, inst_len, resp_start, resp_len];
        let rows = Rows::new(&columns)?;
        py.detach(|| {
            let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
            for row in 0..rows.len() {
                let [inst, resp] = rows.spans(row);
                let length = |length: u64| {
                    u32::try_from(length).map_err(|_| PyValueError::new_err(format!("got a length of {length}")))
                };
                let (inst_len, resp_len) = (length(inst.1)?, length(resp.1)?);
                let (inst_start, resp_start) = (base.wrapping_add(inst.0), base.wrapping_add(resp.0));
                table.push(Place { inst_start, inst_len, resp_start, resp_len });
            }
            Ok(())
        })
    }

    #[getter]
    fn total(&self) -> u64 {
        self.0.read().unwrap_or_else(PoisonError::into_inner).total()
    }

    #[getter]
    fn after(&self) -> u32 {
        self.0.read().unwrap_or_else(PoisonError::into_inner).range().end
    }
}

struct Digested {
    handle: Option<i32>,
    hasher: Hasher,
    size: u64,
    /// The bytes after the last whole block.
    rest: Vec<u8>,
}

/// Bytes that are digested and written at once: a subtree of BLAKE3's tree and whole pages, where blocks that begin after
/// a header take both apart.
const BLOCK: usize = 1 << 16;

impl Digested {
    /// Room for this many more bytes.
    fn room(&mut self, bytes: usize) -> &mut [u8] {
        let before = self.rest.len();
        self.rest.resize(before + bytes, 0);
        &mut self.rest[before..]
    }

    /// Write and digest the first bytes that wait.
    fn append(&mut self, bytes: usize) -> io::Result<()> {
        let mine = &self.rest[..bytes];
        self.hasher.update(mine);
        if let Some(handle) = self.handle {
            write_all_at(handle, mine, self.size)?;
        }
        self.size += bytes as u64;
        self.rest.drain(..bytes);
        Ok(())
    }
}

struct Epoch {
    files: [Digested; 4],
    widths: (usize, usize),
    /// Rows of tables that were there before, table by table.
    aside: Vec<Aside>,
}

/// Places of the rows of a table in the order of the epoch, in a file.
struct Aside {
    file: File,
    /// Of the rows: the first, and the one after the last.
    rows: Range<u32>,
    /// Bytes of a place: the start of a response is there only if it does not follow its instruction.
    width: usize,
    size: u64,
    read: u64,
    places: VecDeque<Place>,
}

/// Places that are read at once.
const AT_ONCE: u64 = 1 << 12;

impl Aside {
    fn append(&mut self, places: &[Place]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(places.len() * self.width);
        for place in places {
            bytes.extend(place.inst_start.to_le_bytes());
            bytes.extend(place.inst_len.to_le_bytes());
            bytes.extend(place.resp_len.to_le_bytes());
            bytes.extend(&place.resp_start.to_le_bytes()[..self.width - 16]);
        }
        self.file.write_all_at(&bytes, self.size)?;
        self.size += bytes.len() as u64;
        Ok(())
    }

    fn next(&mut self) -> io::Result<Option<Place>> {
        if self.places.is_empty() {
            let mut bytes = vec![0; (self.size - self.read).min(AT_ONCE * self.width as u64) as usize];
            self.file.read_exact_at(&mut bytes, self.read)?;
            self.read += bytes.len() as u64;
            self.places.extend(bytes.chunks_exact(self.width).map(|bytes| {
                let part = |from: usize, to: usize| {
                    bytes[from..to].iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
                };
                let (inst_start, inst_len, resp_len) = (part(0, 8), part(8, 12) as u32, part(12, 16) as u32);
                let resp_start = if bytes.len() > 16 { part(16, 24) } else { inst_start + u64::from(inst_len) };
                Place { inst_start, inst_len, resp_start, resp_len }
            }));
        }
        Ok(self.places.pop_front())
    }
}

/// The four arrays of an epoch.
#[pyclass(frozen, module = "pairmill._native")]
pub(crate) struct EpochArrays(Mutex<Epoch>);

/// Rows whose arrays stay in the processor's cache from their making to their writing.
const STEP: usize = 1 << 14;

fn absent() -> PyErr {
    PyValueError::new_err("got the number of a row that is not in the table")
}

impl Epoch {
    /// A table of these rows alone and their numbers in it, if some were set aside.
    fn together(&mut self, table: &Table, order: &[u32]) -> PyResult<Option<(Table, Vec<u32>)>> {
        if self.aside.is_empty() {
            return Ok(None);
        }
        let mut here = Vec::with_capacity(order.len());
        table.find(order, &mut here);
        let (mut here, mut all) = (here.into_iter(), Table::new(order.len(), 0, None));
        for row in order {
            // One of a few tables: looking through them is faster than a search.
            let place = match self.aside.iter_mut().find(|aside| aside.rows.contains(row)) {
                Some(aside) => aside.next()?,
                None => here.next(),
            };
            all.push(place.ok_or_else(absent)?);
        }
        Ok(Some((all, (0..order.len() as u32).collect())))
    }
}

#[pymethods]
impl EpochArrays {
    /// Begin the arrays of an epoch, with their headers; starts and lengths have so many bytes.
    #[new]
    fn new(mut heads: [Vec<u8>; 4], handles: Option<[i32; 4]>, widths: (usize, usize)) -> PyResult<Self> {
        if !matches!(widths, (4, 4) | (8, 4 | 8)) {
            return Err(PyValueError::new_err(format!(
                "got widths {widths:?}; expected 4 or 8, lengths not above starts"
            )));
        }
        let files = [0, 1, 2, 3].map(|number| Digested {
            handle: handles.map(|handles| handles[number]),
            hasher: Hasher::new(),
            size: 0,
            rest: std::mem::take(&mut heads[number]),
        });
        Ok(Self(Mutex::new(Epoch { files, widths, aside: Vec::new() })))
    }

    /// Keep the places of those of these rows that are in the table in a file, which is that of the table alone.
    fn set_aside(
        &self,
        py: Python<'_>,
        table: &RowTable,
        order: PyReadonlyArray1<'_, u32>,
        path: PathBuf,
    ) -> PyResult<()> {
        let order = order.as_slice()?;
        py.detach(|| {
            let mut epoch = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let table = table.0.read().unwrap_or_else(PoisonError::into_inner);
            if epoch.aside.last().is_none_or(|aside| aside.rows != table.range()) {
                let file = File::options().read(true).write(true).create_new(true).open(path)?;
                let (rows, width) = (table.range(), if table.follows() { 16 } else { 24 });
                epoch.aside.push(Aside { file, rows, width, size: 0, read: 0, places: VecDeque::new() });
            }
            let mut places = Vec::new();
            table.find(order, &mut places);
            if let Some(aside) = epoch.aside.last_mut() {
                aside.append(&places)?;
            }
            Ok(())
        })
    }

    /// Append these rows, which are in the table or were set aside.
    fn append(&self, py: Python<'_>, table: &RowTable, order: PyReadonlyArray1<'_, u32>) -> PyResult<()> {
        let order = order.as_slice()?;
        py.detach(|| {
            let mut epoch = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let (starts, lengths) = epoch.widths;
            for order in order.chunks(STEP) {
                // Several epochs read it at once, and nothing changes it any more.
                let table = table.0.read().unwrap_or_else(PoisonError::into_inner);
                let together = epoch.together(&table, order)?;
                let (table, order) = together.as_ref().map_or((&*table, order), |(table, order)| (table, &order[..]));
                let [a, b, c, d] = &mut epoch.files;
                let out = [(a, starts), (b, lengths), (c, starts), (d, lengths)];
                let out = out.map(|(file, width)| file.room(width * order.len()));
                let filled = match (starts, lengths) {
                    (4, _) => table.fill::<4, 4>(order, out),
                    (_, 4) => table.fill::<8, 4>(order, out),
                    _ => table.fill::<8, 8>(order, out),
                };
                if !filled {
                    return Err(absent());
                }
                for file in &mut epoch.files {
                    file.append(file.rest.len() / BLOCK * BLOCK)?;
                }
            }
            Ok(())
        })
    }

    /// Write what waits; digest, as 64 hexadecimal digits, and bytes of each file.
    fn finish(&self) -> PyResult<Vec<(String, u64)>> {
        let mut epoch = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let made = epoch.files.iter_mut().map(|file| {
            file.append(file.rest.len())?;
            Ok((file.hasher.finalize().to_hex().to_string(), file.size))
        });
        made.collect()
    }
}
