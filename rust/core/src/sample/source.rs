//! The index arrays of a tokenized task, read from its folder in pieces, checked and digested as they pass.
//!
//! What is not as it should be is not described here: [`Unfit`] sends the caller to its slow reader, which words the
//! error, and which also reads what is merely unusual (another byte order, say).

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use sha2::Digest as _;

/// The names of the index arrays, in the order of columns everywhere; the last may be absent.
pub const COLUMNS: [&str; 5] = ["inst_start", "inst_len", "resp_start", "resp_len", "resp_bytes"];
/// Rows that are read at a time: their columns stay in the processor's cache until they are used.
const ROWS: usize = 1 << 14;
const BLAKE3: &str = "blake3:";

/// The arrays of a task.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// The task's folder.
    pub folder: PathBuf,
    /// The expected digest of each column's file: `blake3:` and 64 digits, or the 64 digits of a SHA-256; empty = any. As
    /// many columns are read as there are digests, four or five.
    pub digests: Vec<String>,
}

/// The arrays cannot be read here, or are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfit;

/// Some rows of a task.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'a> {
    /// Tokens of the task.
    pub tokens: u64,
    /// Rows of the task.
    pub rows: u64,
    /// Rows before these.
    pub first: u64,
    /// The columns of these rows, as [`COLUMNS`] orders them; spans are inside the tokens.
    pub columns: &'a [Vec<u64>],
}

impl Chunk<'_> {
    /// How many rows these are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.columns[0].len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Memory that one task after another is read into.
#[derive(Default)]
pub struct Buffers {
    raw: Vec<u8>,
    columns: Vec<Vec<u64>>,
}

impl Source {
    /// Give all rows to `each`, in order; rows and tokens of the task.
    ///
    /// # Errors
    /// An array is missing, is not plain, or is not the expected one, or spans do not fit the tokens. What `each` was
    /// given by then is void.
    pub fn read(&self, buffers: &mut Buffers, mut each: impl FnMut(Chunk<'_>)) -> Result<(u64, u64), Unfit> {
        let tokens = Array::open(&self.folder, "tokens", "")?.length;
        let arrays = COLUMNS.iter().zip(&self.digests).map(|(name, digest)| Array::open(&self.folder, name, digest));
        let mut arrays = arrays.collect::<Result<Vec<_>, _>>()?;
        let rows = arrays.first().ok_or(Unfit)?.length;
        if arrays.len() < 4 || arrays.iter().any(|array| array.length != rows) {
            return Err(Unfit);
        }
        buffers.columns.resize(arrays.len(), Vec::new());
        let (mut first, mut total) = (0, 0_u64);
        while first < rows {
            let count = ROWS.min(usize::try_from(rows - first).map_err(|_| Unfit)?);
            for (array, values) in arrays.iter_mut().zip(&mut buffers.columns) {
                array.next(count, &mut buffers.raw, values)?;
            }
            let columns = &buffers.columns[..];
            total = total.checked_add(checked(columns, tokens)?).ok_or(Unfit)?;
            each(Chunk { tokens, rows, first, columns });
            first += count as u64;
        }
        for array in arrays {
            array.digest.require(&array.expected)?;
        }
        if total == tokens { Ok((rows, tokens)) } else { Err(Unfit) }
    }
}

/// The sum of all lengths, if spans are inside the tokens.
fn checked(columns: &[Vec<u64>], tokens: u64) -> Result<u64, Unfit> {
    let mut total = 0;
    for part in columns[..4].chunks_exact(2) {
        let mut inside = true;
        let mut sum = 0_u64;
        for (&start, &length) in part[0].iter().zip(&part[1]) {
            // Both are at most `tokens`, of which a file holds fewer than 2^63.
            inside &= start <= tokens && length <= tokens && start.wrapping_add(length) <= tokens;
            sum = sum.wrapping_add(length);
        }
        if !inside {
            return Err(Unfit);
        }
        total += sum;
    }
    let known = columns.get(4).is_none_or(|bytes| bytes.iter().all(|&value| i64::try_from(value).is_ok()));
    if known { Ok(total) } else { Err(Unfit) }
}

enum Digest {
    None,
    Blake3(Box<blake3::Hasher>),
    Sha256(sha2::Sha256),
}

impl Digest {
    fn update(&mut self, data: &[u8]) {
        match self {
            Self::None => (),
            Self::Blake3(hasher) => {
                hasher.update(data);
            }
            Self::Sha256(hasher) => hasher.update(data),
        }
    }

    fn require(self, expected: &str) -> Result<(), Unfit> {
        let text = match self {
            Self::None => return Ok(()),
            Self::Blake3(hasher) => format!("{BLAKE3}{}", hasher.finalize().to_hex()),
            Self::Sha256(hasher) => hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect(),
        };
        if text == expected { Ok(()) } else { Err(Unfit) }
    }
}

/// An `.npy` file that is read from its beginning to its end.
struct Array {
    file: File,
    length: u64,
    width: usize,
    digest: Digest,
    expected: String,
}

impl Array {
    fn open(folder: &Path, name: &str, expected: &str) -> Result<Self, Unfit> {
        let mut file = File::open(folder.join(format!("{name}.npy"))).map_err(|_| Unfit)?;
        let size = file.metadata().map_err(|_| Unfit)?.len();
        let mut digest = match expected {
            "" => Digest::None,
            text if text.starts_with(BLAKE3) => Digest::Blake3(Box::default()),
            _ => Digest::Sha256(sha2::Sha256::new()),
        };
        let mut head = [0; 10];
        file.read_exact(&mut head).map_err(|_| Unfit)?;
        if head[..8] != *b"\x93NUMPY\x01\x00" {
            return Err(Unfit);
        }
        let mut text = vec![0; usize::from(u16::from_le_bytes([head[8], head[9]]))];
        file.read_exact(&mut text).map_err(|_| Unfit)?;
        digest.update(&head);
        digest.update(&text);
        let (length, width) = std::str::from_utf8(&text).ok().and_then(parsed).ok_or(Unfit)?;
        let bytes = length.checked_mul(width as u64).and_then(|bytes| bytes.checked_add((10 + text.len()) as u64));
        if bytes != Some(size) {
            return Err(Unfit);
        }
        Ok(Self { file, length, width, digest, expected: expected.to_owned() })
    }

    /// Read the next `count` values.
    fn next(&mut self, count: usize, raw: &mut Vec<u8>, values: &mut Vec<u64>) -> Result<(), Unfit> {
        raw.resize(count * self.width, 0);
        self.file.read_exact(raw).map_err(|_| Unfit)?;
        self.digest.update(raw);
        values.clear();
        match self.width {
            8 => values.extend(raw.as_chunks().0.iter().map(|&bytes| u64::from_le_bytes(bytes))),
            4 => values.extend(raw.as_chunks().0.iter().map(|&bytes| u64::from(u32::from_le_bytes(bytes)))),
            _ => return Err(Unfit),
        }
        Ok(())
    }
}

/// Length and width of the values by the text of a header: one dimension of unsigned little-endian integers, or of signed
/// ones of 64 bits, whose negative numbers are beyond any array.
fn parsed(text: &str) -> Option<(u64, usize)> {
    let after = |key: &str| text.split_once(key).map(|(_, rest)| rest.trim_start_matches([':', ' ']));
    let (kind, _) = after("'descr'")?.strip_prefix('\'')?.split_once('\'')?;
    let width = match kind {
        "<u8" | "<i8" => 8,
        "<u4" => 4,
        "<u2" => 2,
        "|u1" => 1,
        _ => return None,
    };
    let (length, rest) = after("'shape'")?.strip_prefix('(')?.split_once(',')?;
    rest.trim_start().starts_with(')').then_some(())?;
    Some((length.trim().parse().ok()?, width))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_one_dimension_are_read() {
        let header =
            |kind: &str, shape: &str| format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n");
        assert_eq!(parsed(&header("<u8", "(12,)")), Some((12, 8)));
        assert_eq!(parsed(&header("|u1", "(0,)")), Some((0, 1)));
        for (kind, shape) in [("<f8", "(1,)"), (">u8", "(1,)"), ("<u8", "(1, 2)"), ("<u8", "()"), ("<u8", "(-1,)")] {
            assert_eq!(parsed(&header(kind, shape)), None, "{kind} {shape}");
        }
        assert_eq!(parsed("{'descr':'<u4','shape':(7,)}"), Some((7, 4)));
    }

    #[test]
    fn spans_outside_the_tokens_are_unfit() {
        let columns = |start: u64, length: u64| vec![vec![0], vec![2], vec![start], vec![length]];
        assert_eq!(checked(&columns(2, 3), 5), Ok(5));
        for (start, length) in [(3, 3), (u64::MAX, 1), (1, u64::MAX), (6, 0)] {
            assert_eq!(checked(&columns(start, length), 5), Err(Unfit));
        }
        let mut known = columns(2, 3);
        known.push(vec![u64::MAX]);
        assert_eq!(checked(&known, 5), Err(Unfit));
    }
}
