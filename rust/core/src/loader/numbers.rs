//! Numbers of any kind in a mapped file, lowest byte first.

/// What kind of numbers an array holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Integers without a sign, by bytes.
    Unsigned(Width),
    /// Integers with one.
    Signed(Width),
    /// Floating-point numbers; of four or eight bytes.
    Float(Width),
}

/// Bytes of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Width {
    One = 1,
    Two = 2,
    Four = 4,
    Eight = 8,
}

impl Kind {
    /// From the letter and the bytes of a NumPy type: `u2`, `i8`, `f4`, …
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let width = match name.get(1..)? {
            "1" => Width::One,
            "2" => Width::Two,
            "4" => Width::Four,
            "8" => Width::Eight,
            _ => return None,
        };
        match name.get(..1)? {
            "u" => Some(Self::Unsigned(width)),
            "i" => Some(Self::Signed(width)),
            "f" if matches!(width, Width::Four | Width::Eight) => Some(Self::Float(width)),
            _ => None,
        }
    }

    const fn width(self) -> usize {
        match self {
            Self::Unsigned(width) | Self::Signed(width) | Self::Float(width) => width as usize,
        }
    }
}

/// An array: bytes and what they hold.
#[derive(Clone, Copy, Debug)]
pub struct Numbers<'a> {
    bytes: &'a [u8],
    kind: Kind,
}

macro_rules! each {
    ($kind:expr, $number:ident => $body:expr) => {
        match $kind {
            Kind::Unsigned(Width::One) => {
                type $number = u8;
                $body
            }
            Kind::Unsigned(Width::Two) => {
                type $number = u16;
                $body
            }
            Kind::Unsigned(Width::Four) => {
                type $number = u32;
                $body
            }
            Kind::Unsigned(Width::Eight) => {
                type $number = u64;
                $body
            }
            Kind::Signed(Width::One) => {
                type $number = i8;
                $body
            }
            Kind::Signed(Width::Two) => {
                type $number = i16;
                $body
            }
            Kind::Signed(Width::Four) => {
                type $number = i32;
                $body
            }
            Kind::Signed(Width::Eight) => {
                type $number = i64;
                $body
            }
            Kind::Float(Width::Eight) => {
                type $number = f64;
                $body
            }
            Kind::Float(_) => {
                type $number = f32;
                $body
            }
        }
    };
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
        self.bytes.len() / self.kind.width()
    }

    /// Whether there is none.
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
            const BYTES: usize = size_of::<Number>();
            let mut number = [0; BYTES];
            number.copy_from_slice(&self.bytes[place * BYTES..][..BYTES]);
            Number::from_le_bytes(number) as i64
        })
    }

    /// Cast as many numbers as `out` holds, from `start` on, as NumPy's `astype(numpy.int32)` does: integers wrap, floats
    /// lose what is behind the point. False: they do not all lie in the array, and `out` is as it was.
    #[allow(clippy::unnecessary_cast)]
    #[inline]
    #[must_use]
    pub fn cast(&self, start: usize, out: &mut [i32]) -> bool {
        each!(self.kind, Number => {
            const BYTES: usize = size_of::<Number>();
            let span = start.checked_mul(BYTES).and_then(|first| self.bytes.get(first..)?.get(..out.len() * BYTES));
            let Some(span) = span else { return false };
            for (out, bytes) in out.iter_mut().zip(span.chunks_exact(BYTES)) {
                let mut number = [0; BYTES];
                number.copy_from_slice(bytes);
                *out = Number::from_le_bytes(number) as i32;
            }
        });
        true
    }
}
