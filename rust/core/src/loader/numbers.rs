//! Numbers of any kind in a mapped file, lowest byte first.

/// What kind of numbers an array holds: unsigned, signed or floating-point, and their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    U1,
    U2,
    U4,
    U8,
    I1,
    I2,
    I4,
    I8,
    F4,
    F8,
}

/// Evaluate an expression in which `$Number` is the type of a kind of numbers.
macro_rules! each {
    ($kind:expr, $Number:ident => $body:expr) => {
        each!($kind, $Number => $body, U1 u8, U2 u16, U4 u32, U8 u64, I1 i8, I2 i16, I4 i32, I8 i64, F4 f32, F8 f64)
    };
    ($kind:expr, $Number:ident => $body:expr, $($name:ident $type:ty),*) => {
        match $kind {
            $(crate::loader::numbers::Kind::$name => {
                type $Number = $type;
                $body
            })*
        }
    };
}

pub(crate) use each;

impl Kind {
    /// From the letter and the bytes of a NumPy type: `u2`, `i8`, `f4`, …
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "u1" => Self::U1,
            "u2" => Self::U2,
            "u4" => Self::U4,
            "u8" => Self::U8,
            "i1" => Self::I1,
            "i2" => Self::I2,
            "i4" => Self::I4,
            "i8" => Self::I8,
            "f4" => Self::F4,
            "f8" => Self::F8,
            _ => return None,
        })
    }

    /// Bytes of a number.
    #[must_use]
    pub const fn width(self) -> usize {
        each!(self, Number => size_of::<Number>())
    }
}

/// An array: bytes and what they hold.
#[derive(Clone, Copy, Debug)]
pub struct Numbers<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) kind: Kind,
}

impl<'a> Numbers<'a> {
    /// An array of this kind.
    #[must_use]
    pub const fn new(bytes: &'a [u8], kind: Kind) -> Self {
        Self { bytes, kind }
    }

    /// How many.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes.len() / self.width()
    }

    const fn width(&self) -> usize {
        self.kind.width()
    }

    /// The `length` numbers from `start` on, if all of them are in the array.
    #[must_use]
    pub fn within(&self, start: usize, length: usize) -> Option<Self> {
        let bytes = self.bytes.get(start.checked_mul(self.width())?..)?.get(..length.checked_mul(self.width())?)?;
        Some(Self { bytes, ..*self })
    }

    /// Whether the array is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number at a place, which there must be; what an `i64` cannot hold wraps.
    #[allow(clippy::unnecessary_cast)] // it is for the other kinds
    #[inline]
    #[must_use]
    pub fn get(&self, place: usize) -> i64 {
        each!(self.kind, Number => {
            Number::from_le_bytes(self.bytes.as_chunks().0[place]) as i64
        })
    }

    /// Read as many numbers as `out` holds, from `start` on, all of which there must be; as [`Numbers::get`] does.
    #[allow(clippy::unnecessary_cast)]
    pub fn read(&self, start: usize, out: &mut [i64]) {
        each!(self.kind, Number => {
            for (out, bytes) in out.iter_mut().zip(&self.bytes.as_chunks().0[start..]) {
                *out = Number::from_le_bytes(*bytes) as i64;
            }
        });
    }

    /// Cast as many numbers as `out` holds, from `start` on, as NumPy's `astype(numpy.int32)` does: integers wrap, floats
    /// lose their fraction. Returns false, and leaves `out` as it was, if they are not all in the array.
    #[allow(clippy::unnecessary_cast)]
    #[inline]
    #[must_use]
    pub fn cast(&self, start: usize, out: &mut [i32]) -> bool {
        each!(self.kind, Number => {
            let Some(numbers) = self.within(start, out.len()) else { return false };
            for (out, bytes) in out.iter_mut().zip(numbers.bytes.as_chunks().0) {
                *out = Number::from_le_bytes(*bytes) as i32;
            }
        });
        true
    }
}
