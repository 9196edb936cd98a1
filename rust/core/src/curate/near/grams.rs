//! Word n-grams as numbers.

/// Odd constants without a pattern, from the digits of pi.
const FIRST: u64 = 0x243f_6a88_85a3_08d3;
const SECOND: u64 = 0x1319_8a2e_0370_7345;

/// Tokens of a gram of a pair.
pub(crate) const OF_PAIR: usize = 3;
/// Tokens of a gram of a document.
pub(crate) const OF_DOCUMENT: usize = 5;

/// A hash of two numbers.
#[inline(always)]
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ FIRST) * u128::from(b ^ SECOND);
    product as u64 ^ (product >> 64) as u64
}

/// A hash of bytes that cannot be told from random.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

/// The hashes of tokens of a sketch, four bytes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hashes<'a>(&'a [[u8; 4]]);

impl<'a> Hashes<'a> {
    /// Those in `bytes`; what is left over after the last four is ignored.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes.as_chunks().0)
    }

    pub(crate) fn len(self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn bytes(self) -> &'a [u8] {
        self.0.as_flattened()
    }

    /// The token at a place below the length.
    #[inline(always)]
    pub(crate) fn at(self, place: usize) -> u32 {
        u32::from_le_bytes(self.0[place])
    }

    /// Every gram of three tokens, in order.
    pub(crate) fn threes(self) -> impl Iterator<Item = u64> + 'a {
        let word = |bytes: [u8; 4]| u64::from(u32::from_le_bytes(bytes));
        self.0.windows(OF_PAIR).map(move |gram| match *gram {
            [a, b, c] => mix(word(a) | word(b) << 32, word(c)),
            _ => 0,
        })
    }

    /// Every gram of five tokens, in order; of fewer tokens, all of them are one gram.
    pub(crate) fn fives(self) -> impl Iterator<Item = u64> + 'a {
        let word = |bytes: [u8; 4]| u64::from(u32::from_le_bytes(bytes));
        let whole = (self.len() < OF_DOCUMENT).then(|| hash(self.bytes()));
        whole.into_iter().chain(self.0.windows(OF_DOCUMENT).map(move |gram| match *gram {
            [a, b, c, d, e] => mix(mix(word(a) | word(b) << 32, word(c) | word(d) << 32), word(e)),
            _ => 0,
        }))
    }
}

/// The distinct numbers, ascending.
pub(crate) fn set(grams: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut grams: Vec<u64> = grams.collect();
    grams.sort_unstable();
    grams.dedup();
    grams
}

/// How many numbers two ascending lists share.
pub(crate) fn shared(a: &[u64], b: &[u64]) -> usize {
    let (few, many) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    let (mut i, mut j, mut count) = (0, 0, 0);
    while let (Some(&x), Some(&y)) = (few.get(i), many.get(j)) {
        count += usize::from(x == y);
        i += usize::from(x <= y);
        j += usize::from(y <= x);
    }
    count
}
