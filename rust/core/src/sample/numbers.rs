//! A column of a plan: numbers of 32 bits, or of 64 once one does not fit.

/// The numbers.
#[derive(Clone, Debug)]
pub enum Numbers {
    /// All fit in 31 bits, or are negative.
    Narrow(Vec<i32>),
    /// Some may not.
    Wide(Vec<i64>),
}

impl Default for Numbers {
    fn default() -> Self {
        Self::Narrow(Vec::new())
    }
}

impl Numbers {
    /// An empty column with room for `count` numbers up to `most`.
    #[must_use]
    pub fn with_capacity(most: u64, count: usize) -> Self {
        if most > i32::MAX as u64 {
            Self::Wide(Vec::with_capacity(count))
        } else {
            Self::Narrow(Vec::with_capacity(count))
        }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Narrow(values) => values.len(),
            Self::Wide(values) => values.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One of them.
    #[must_use]
    pub fn get(&self, place: usize) -> i64 {
        match self {
            Self::Narrow(values) => values[place].into(),
            Self::Wide(values) => values[place],
        }
    }

    /// Their sum; none is negative.
    #[must_use]
    pub fn sum(&self) -> u64 {
        match self {
            Self::Narrow(values) => values.iter().map(|&value| value as u64).sum(),
            Self::Wide(values) => values.iter().map(|&value| value as u64).sum(),
        }
    }

    /// Append numbers that the column is wide enough for.
    pub fn extend(&mut self, numbers: impl Iterator<Item = i64>) {
        match self {
            Self::Narrow(values) => values.extend(numbers.map(|value| value as i32)),
            Self::Wide(values) => values.extend(numbers),
        }
    }

    /// Append another column, and become wide if that is needed.
    pub fn append(&mut self, other: &Self) {
        if matches!(self, Self::Narrow(_)) && other.needs_width() {
            self.widen();
        }
        match (self, other) {
            (Self::Narrow(mine), Self::Narrow(theirs)) => mine.extend_from_slice(theirs),
            (Self::Wide(mine), Self::Wide(theirs)) => mine.extend_from_slice(theirs),
            (Self::Wide(mine), Self::Narrow(theirs)) => mine.extend(theirs.iter().map(|&value| i64::from(value))),
            (Self::Narrow(mine), Self::Wide(theirs)) => mine.extend(theirs.iter().map(|&value| value as i32)),
        }
    }

    /// Whether a number does not fit in 32 bits.
    #[must_use]
    pub fn needs_width(&self) -> bool {
        match self {
            Self::Narrow(_) => false,
            Self::Wide(values) => values.iter().any(|&value| i32::try_from(value).is_err()),
        }
    }

    /// Become wide.
    pub fn widen(&mut self) {
        if let Self::Narrow(values) = self {
            *self = Self::Wide(values.iter().map(|&value| value.into()).collect());
        }
    }

    /// Keep the numbers at these places only, which ascend.
    pub fn select(&mut self, places: &[u32]) {
        fn kept<T: Copy>(values: &mut Vec<T>, places: &[u32]) {
            for (to, &from) in places.iter().enumerate() {
                values[to] = values[from as usize];
            }
            values.truncate(places.len());
        }
        match self {
            Self::Narrow(values) => kept(values, places),
            Self::Wide(values) => kept(values, places),
        }
    }

    /// Bytes of a number.
    #[must_use]
    pub fn width(&self) -> usize {
        match self {
            Self::Narrow(_) => 4,
            Self::Wide(_) => 8,
        }
    }

    /// Append the bytes of all numbers, little-endian.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Narrow(values) => values.iter().for_each(|value| out.extend_from_slice(&value.to_le_bytes())),
            Self::Wide(values) => values.iter().for_each(|value| out.extend_from_slice(&value.to_le_bytes())),
        }
    }

    /// Forget all numbers, and keep the width.
    pub fn clear(&mut self) {
        match self {
            Self::Narrow(values) => values.clear(),
            Self::Wide(values) => values.clear(),
        }
    }
}
