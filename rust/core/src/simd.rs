//! The classes of 64 bytes at once, and work that is compiled for what the processor can do.

#![allow(unsafe_code)]

use wide::i8x64;

/// Bytes that are looked at together.
pub(crate) const BLOCK: usize = 64;

/// Which bytes of a block are what, byte i in bit i. Bytes outside ASCII are in `high` and nowhere else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ascii {
    pub(crate) letter: u64,
    pub(crate) number: u64,
    /// White space other than line ends.
    pub(crate) space: u64,
    pub(crate) newline: u64,
    /// U+0020; in `space` too.
    pub(crate) blank: u64,
    /// U+0027, the apostrophe, which has none of the classes above.
    pub(crate) quote: u64,
    pub(crate) high: u64,
}

/// Classify the bytes of a block.
#[inline(always)]
pub(crate) fn classify(bytes: &[u8; BLOCK]) -> Ascii {
    // As signed numbers, bytes outside ASCII are below all others.
    let block = i8x64::new(bytes.map(u8::cast_signed));
    let equal = |byte: u8| block.simd_eq(i8x64::splat(byte as i8)).to_bitmask();
    let within = |block: i8x64, first: u8, last: u8| {
        (block.simd_gt(i8x64::splat(first as i8 - 1)) & block.simd_lt(i8x64::splat(last as i8 + 1))).to_bitmask()
    };
    let newline = equal(b'\r') | equal(b'\n');
    let blank = equal(b' ');
    Ascii {
        letter: within(block | i8x64::splat(0x20), b'a', b'z'),
        number: within(block, b'0', b'9'),
        space: within(block, b'\t', b'\r') & !newline | blank,
        newline,
        blank,
        quote: equal(b'\''),
        high: block.to_bitmask(),
    }
}

/// Which bytes of a block are white space of ASCII other than a blank, or the first byte of a character outside ASCII that
/// may be white space; and which are blanks.
#[inline(always)]
pub(crate) fn spaces(bytes: &[u8; BLOCK]) -> (u64, u64) {
    let block = signed(bytes);
    let equal = |byte: u8| block.simd_eq(i8x64::splat(byte as i8));
    let within = |first: u8, last: u8| {
        block.simd_gt(i8x64::splat(first as i8 - 1)) & block.simd_lt(i8x64::splat(last as i8 + 1))
    };
    let others = within(b'\t', b'\r') | within(0x1C, 0x1F) | equal(0xC2) | within(0xE1, 0xE3);
    (others.to_bitmask(), equal(b' ').to_bitmask())
}

/// Which bytes of a folded block are lower-case letters or digits, and which separate and do something more: symbols but for
/// the backtick, `%`, `/`, `*`, `-`, a line feed, a byte outside ASCII.
#[inline(always)]
pub(crate) fn tokens(bytes: &[u8; BLOCK]) -> (u64, u64) {
    let block = signed(bytes);
    let equal = |byte: u8| block.simd_eq(i8x64::splat(byte as i8));
    let within = |first: u8, last: u8| {
        block.simd_gt(i8x64::splat(first as i8 - 1)) & block.simd_lt(i8x64::splat(last as i8 + 1))
    };
    let word = within(b'a', b'z') | within(b'0', b'9');
    let few = equal(b'\n') | equal(b'-') | equal(b'/') | equal(b'^') | equal(b'|') | equal(b'~');
    let more = within(b'$', b'%') | within(b'*', b'+') | within(b'<', b'>');
    (word.to_bitmask(), (few | more | block).to_bitmask())
}

/// Which bytes of a block are what, for the metrics of texts; byte i in bit i.
#[derive(Clone, Copy, Default)]
pub(crate) struct Looks {
    /// White space by Python's `str.isspace`.
    pub(crate) space: u64,
    pub(crate) newline: u64,
    pub(crate) lower: u64,
    pub(crate) upper: u64,
    pub(crate) digit: u64,
    pub(crate) colon: u64,
    pub(crate) dot: u64,
    pub(crate) hash: u64,
    /// `?`, `!` and the comma.
    pub(crate) mark: u64,
    pub(crate) high: u64,
    /// The byte continues a character.
    pub(crate) continues: u64,
}

/// Classify the bytes of a block for the metrics of texts.
#[inline(always)]
pub(crate) fn looks(bytes: &[u8; BLOCK]) -> Looks {
    let block = signed(bytes);
    let equal = |byte: u8| block.simd_eq(i8x64::splat(byte as i8));
    let within = |first: u8, last: u8| {
        block.simd_gt(i8x64::splat(first as i8 - 1)) & block.simd_lt(i8x64::splat(last as i8 + 1))
    };
    Looks {
        space: (within(b'\t', b'\r') | within(0x1C, b' ')).to_bitmask(),
        newline: equal(b'\n').to_bitmask(),
        lower: within(b'a', b'z').to_bitmask(),
        upper: within(b'A', b'Z').to_bitmask(),
        digit: within(b'0', b'9').to_bitmask(),
        colon: equal(b':').to_bitmask(),
        dot: equal(b'.').to_bitmask(),
        hash: equal(b'#').to_bitmask(),
        mark: (equal(b'?') | equal(b'!') | equal(b',')).to_bitmask(),
        high: block.to_bitmask(),
        continues: block.simd_lt(i8x64::splat(0xC0_u8.cast_signed())).to_bitmask(),
    }
}

/// Bytes outside ASCII are below all others.
#[inline(always)]
fn signed(bytes: &[u8; BLOCK]) -> i8x64 {
    let mut signed = [0; BLOCK];
    // A loop: where map() is not inlined, it takes twice the time of all else.
    for (signed, byte) in signed.iter_mut().zip(bytes) {
        *signed = byte.cast_signed();
    }
    i8x64::new(signed)
}

/// A block of a text from a place on, with zeros behind the end of the text.
#[inline(always)]
pub(crate) fn block_at(text: &[u8], at: usize) -> [u8; BLOCK] {
    let rest = text.get(at..).unwrap_or_default();
    rest.first_chunk::<BLOCK>().copied().unwrap_or_else(|| {
        let mut padded = [0; BLOCK];
        padded[..rest.len()].copy_from_slice(rest);
        padded
    })
}

/// The first bit from a place on that is set.
#[inline(always)]
pub(crate) fn next_set(bits: &[u64], from: usize) -> Option<usize> {
    let mut place = from / 64;
    let mut left = bits.get(place)? & (u64::MAX << (from % 64));
    while left == 0 {
        place += 1;
        left = *bits.get(place)?;
    }
    Some(place * 64 + left.trailing_zeros() as usize)
}

/// What the processor can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// What every processor of the architecture can.
    Scalar,
    /// x86-64 with AVX2 and BMI2 (2013 and later).
    // Not to be made outside this crate: on a processor without it, `run` would do anything.
    #[non_exhaustive]
    Avx2,
}

impl Default for Level {
    fn default() -> Self {
        Self::best()
    }
}

impl Level {
    /// The levels that this processor has, the fastest last.
    pub fn available() -> Vec<Self> {
        let mut levels = vec![Self::Scalar];
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt")
        {
            levels.push(Self::Avx2);
        }
        levels
    }

    /// The fastest.
    pub fn best() -> Self {
        Self::available().last().copied().unwrap_or(Self::Scalar)
    }

    /// The level of this name, if this processor has it.
    pub fn named(name: &str) -> Option<Self> {
        Self::available().into_iter().find(|level| level.name() == name)
    }

    /// The name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
        }
    }
}

/// Have the memory of `place` brought near, where the architecture has an instruction for it.
#[inline(always)]
pub(crate) fn prefetch<T>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch has no effect that can be seen; every x86-64 has it.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(place).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// Work that is compiled once for each level.
pub(crate) trait Work {
    type Output;

    /// To be inlined, so that it is compiled with what the level has.
    fn run(self) -> Self::Output;
}

/// Do `work` at `level`.
pub(crate) fn run<W: Work>(level: Level, work: W) -> W::Output {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
        fn with_avx2<W: Work>(work: W) -> W::Output {
            work.run()
        }
        if level == Level::Avx2 {
            // SAFETY: `available` alone makes this level, and it has asked the processor.
            return unsafe { with_avx2(work) };
        }
    }
    let _ = level;
    work.run()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpe::classes::{Class, Classes};

    struct Classify<'a>(&'a [u8; BLOCK]);

    impl Work for Classify<'_> {
        type Output = Ascii;

        #[inline(always)]
        fn run(self) -> Ascii {
            classify(self.0)
        }
    }

    #[test]
    fn all_levels_classify_as_the_table_does() {
        let levels = Level::available();
        assert_eq!(levels.last(), Some(&Level::best()));
        assert_eq!(Level::named("sse9"), None);
        let classes = Classes::get();
        for first in 0..=255_u8 {
            for step in [0_u8, 1, 3, 64, 97] {
                let mut bytes = [0; BLOCK];
                (0_u8..).zip(&mut bytes).for_each(|(at, byte)| *byte = first.wrapping_add(at.wrapping_mul(step)));
                let mask =
                    |is: &dyn Fn(u8) -> bool| bytes.iter().rev().fold(0, |mask, &byte| mask << 1 | u64::from(is(byte)));
                let class = |class: Class| mask(&|byte| byte < 0x80 && classes.of_ascii(byte) == class);
                let expected = Ascii {
                    letter: class(Class::Letter),
                    number: class(Class::Number),
                    space: class(Class::Space),
                    newline: class(Class::Newline),
                    blank: mask(&|byte| byte == b' '),
                    quote: mask(&|byte| byte == b'\''),
                    high: mask(&|byte| byte >= 0x80),
                };
                for &level in &levels {
                    assert_eq!(Level::named(level.name()), Some(level));
                    assert_eq!(run(level, Classify(&bytes)), expected, "{}, {bytes:?}", level.name());
                }
            }
        }
    }

    struct Others<'a>(&'a [u8; BLOCK]);

    impl Work for Others<'_> {
        type Output = [u64; 13];

        #[inline(always)]
        fn run(self) -> [u64; 13] {
            let Looks { space, newline, lower, upper, digit, colon, dot, hash, mark, high, continues } = looks(self.0);
            let (word, more) = tokens(self.0);
            [space, newline, lower, upper, digit, colon, dot, hash, mark, high, continues, word, more]
        }
    }

    #[test]
    fn all_levels_see_in_a_block_what_its_bytes_are() {
        let is: [fn(u8) -> bool; 13] = [
            |byte| matches!(byte, 9..=13 | 28..=32),
            |byte| byte == b'\n',
            |byte| byte.is_ascii_lowercase(),
            |byte| byte.is_ascii_uppercase(),
            |byte| byte.is_ascii_digit(),
            |byte| byte == b':',
            |byte| byte == b'.',
            |byte| byte == b'#',
            |byte| b"?!,".contains(&byte),
            |byte| byte >= 0x80,
            |byte| byte & 0xC0 == 0x80,
            |byte| byte.is_ascii_lowercase() || byte.is_ascii_digit(),
            |byte| byte >= 0x80 || b"\n-/^|~$%*+<=>".contains(&byte),
        ];
        for first in (0..=255_u8).step_by(BLOCK / 2) {
            let bytes = std::array::from_fn(|at| first.wrapping_add(at as u8));
            let expected = is.map(|is| bytes.iter().rev().fold(0, |mask, &byte: &u8| mask << 1 | u64::from(is(byte))));
            for level in Level::available() {
                assert_eq!(run(level, Others(&bytes)), expected, "{}, {first}", level.name());
            }
        }
    }

    #[test]
    fn a_block_has_zeros_behind_the_end_and_bits_are_found_across_words() {
        assert_eq!(block_at(b"abc", 1)[..3], *b"bc\0");
        assert_eq!(block_at(b"abc", 64), [0; BLOCK]);
        let bits = [0b1010, 0, 1];
        assert_eq!(
            [0, 1, 2, 4, 128, 129].map(|from| next_set(&bits, from)),
            [1, 1, 3, 128, 128].map(Some).into_iter().chain([None]).collect::<Vec<_>>()[..]
        );
    }
}
