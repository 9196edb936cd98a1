//! The index arrays of epochs.

use std::io;
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
    fn new(rows: usize, apart: bool) -> Self {
        Self(RwLock::new(Table::new(rows, apart)))
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
        let rows = Rows::new([inst_start, inst_len, resp_start, resp_len])?;
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
    fn longest(&self) -> u32 {
        self.0.read().unwrap_or_else(PoisonError::into_inner).longest()
    }

    /// Begin the arrays of an epoch, with their headers; starts and lengths have so many bytes.
    fn epoch(&self, heads: [Vec<u8>; 4], handles: Option<[i32; 4]>, widths: (usize, usize)) -> PyResult<EpochArrays> {
        if !matches!(widths, (4, 4) | (8, 4 | 8)) {
            return Err(PyValueError::new_err(format!(
                "got widths {widths:?}; expected 4 or 8, lengths not above starts"
            )));
        }
        let files = [0, 1, 2, 3].map(|number| Digested {
            handle: handles.map(|handles| handles[number]),
            hasher: Hasher::new(),
            size: 0,
        });
        let mut arrays = Epoch { files, widths };
        for (file, head) in arrays.files.iter_mut().zip(&heads) {
            file.append(head)?;
        }
        Ok(EpochArrays(Mutex::new(arrays)))
    }
}

struct Digested {
    handle: Option<i32>,
    hasher: Hasher,
    size: u64,
}

impl Digested {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hasher.update(bytes);
        if let Some(handle) = self.handle {
            write_all_at(handle, bytes, self.size)?;
        }
        self.size += bytes.len() as u64;
        Ok(())
    }
}

struct Epoch {
    files: [Digested; 4],
    widths: (usize, usize),
}

/// The four arrays of an epoch.
#[pyclass(frozen, module = "pairmill._native")]
pub(crate) struct EpochArrays(Mutex<Epoch>);

/// Rows whose arrays stay in the processor's cache from their making to their writing.
const STEP: usize = 1 << 14;

#[pymethods]
impl EpochArrays {
    /// Append these rows.
    fn append(&self, py: Python<'_>, table: &RowTable, order: PyReadonlyArray1<'_, u32>) -> PyResult<()> {
        let order = order.as_slice()?;
        py.detach(|| {
            let mut epoch = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let (starts, lengths) = epoch.widths;
            let mut out = [starts, lengths, starts, lengths].map(|width| vec![0; width * STEP.min(order.len())]);
            for order in order.chunks(STEP) {
                for (out, width) in out.iter_mut().zip([starts, lengths, starts, lengths]) {
                    out.truncate(width * order.len());
                }
                let [a, b, c, d] = &mut out;
                let filled = {
                    // Several epochs read it at once, and nothing changes it any more.
                    let table = table.0.read().unwrap_or_else(PoisonError::into_inner);
                    match epoch.widths {
                        (4, _) => table.fill::<4, 4>(order, [a, b, c, d]),
                        (_, 4) => table.fill::<8, 4>(order, [a, b, c, d]),
                        _ => table.fill::<8, 8>(order, [a, b, c, d]),
                    }
                };
                if !filled {
                    return Err(PyValueError::new_err("got the number of a row that is not in the table"));
                }
                for (file, out) in epoch.files.iter_mut().zip(&out) {
                    file.append(out)?;
                }
            }
            Ok(())
        })
    }

    /// Digest, as 64 hexadecimal digits, and bytes of each file.
    fn finish(&self) -> Vec<(String, u64)> {
        let epoch = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        epoch.files.iter().map(|file| (file.hasher.finalize().to_hex().to_string(), file.size)).collect()
    }
}
