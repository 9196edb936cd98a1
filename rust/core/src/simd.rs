//! The classes of 64 bytes at once, by what the processor can do.
//!
//! The levels differ in how ASCII bytes are classified and in nothing else. Which of them runs is found out while
//! running: a wheel for any processor of the architecture must not be built for the newest.

#![allow(unsafe_code)]

use crate::bpe::classes::{Class, Classes};

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
    /// U+0027, the apostrophe, which is of no other class here than none.
    pub(crate) quote: u64,
    pub(crate) high: u64,
}

/// What the processor can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Anything.
    Scalar,
    /// x86-64 with AVX2 and BMI2 (2013 and later).
    // Not to be made outside this crate: on a processor without it, `run` would do anything.
    #[non_exhaustive]
    Avx2,
    /// x86-64 with AVX-512 BW and VBMI (2019 and later).
    #[non_exhaustive]
    Avx512,
}

impl Level {
    /// The levels that this processor has, the fastest last.
    pub fn available() -> Vec<Self> {
        let mut levels = vec![Self::Scalar];
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2")
                && is_x86_feature_detected!("lzcnt")
                && is_x86_feature_detected!("popcnt");
            let avx512 = is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512vbmi");
            levels.extend(avx2.then_some(Self::Avx2));
            levels.extend((avx2 && avx512).then_some(Self::Avx512));
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
            Self::Avx512 => "avx512",
        }
    }
}

/// One level's way of doing things.
pub(crate) trait Simd: Copy {
    fn classify(self, bytes: &[u8; BLOCK]) -> Ascii;
}

/// Have the memory of `place` brought near, where that is known how.
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
    fn run(self, simd: impl Simd) -> Self::Output;
}

/// Do `work` at `level`.
pub(crate) fn run<W: Work>(level: Level, work: W) -> W::Output {
    #[cfg(target_arch = "x86_64")]
    match level {
        // SAFETY: a `Level` other than Scalar is made by `available` alone, which has asked the processor.
        Level::Avx512 => return unsafe { x86::with_avx512(work) },
        // SAFETY: as above.
        Level::Avx2 => return unsafe { x86::with_avx2(work) },
        Level::Scalar => {}
    }
    let _ = level;
    work.run(Scalar)
}

#[derive(Clone, Copy)]
struct Scalar;

impl Simd for Scalar {
    #[inline(always)]
    fn classify(self, bytes: &[u8; BLOCK]) -> Ascii {
        let classes = Classes::get();
        let mut found = Ascii::default();
        for (at, &byte) in bytes.iter().enumerate() {
            let bit = 1 << at;
            if byte >= 0x80 {
                found.high |= bit;
                continue;
            }
            match classes.of_ascii(byte) {
                Class::Letter => found.letter |= bit,
                Class::Number => found.number |= bit,
                Class::Space => found.space |= bit,
                Class::Newline => found.newline |= bit,
                Class::Other => {}
            }
            match byte {
                b' ' => found.blank |= bit,
                b'\'' => found.quote |= bit,
                _ => {}
            }
        }
        found
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Ascii, BLOCK, Simd, Work};

    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx2,bmi1,bmi2,lzcnt,popcnt")]
    pub(super) fn with_avx512<W: Work>(work: W) -> W::Output {
        work.run(Avx512)
    }

    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    pub(super) fn with_avx2<W: Work>(work: W) -> W::Output {
        work.run(Avx2)
    }

    const LETTER: u8 = 1;
    const NUMBER: u8 = 2;
    const SPACE: u8 = 4;
    const NEWLINE: u8 = 8;
    const BLANK: u8 = 16;
    const QUOTE: u8 = 32;

    const fn flags(byte: u8) -> u8 {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' => LETTER,
            b'0'..=b'9' => NUMBER,
            b'\t' | 0x0B | 0x0C => SPACE,
            b' ' => SPACE | BLANK,
            b'\r' | b'\n' => NEWLINE,
            b'\'' => QUOTE,
            _ => 0,
        }
    }

    const FLAGS: [u8; 128] = {
        let mut table = [0; 128];
        let mut byte = 0;
        while byte < 128 {
            table[byte as usize] = flags(byte);
            byte += 1;
        }
        table
    };

    #[derive(Clone, Copy)]
    pub(super) struct Avx512;

    impl Simd for Avx512 {
        #[inline(always)]
        fn classify(self, bytes: &[u8; BLOCK]) -> Ascii {
            // SAFETY: only `with_avx512` makes the value, in a context that has the features.
            unsafe { classify_512(bytes) }
        }
    }

    /// One lookup in 128 flags.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn classify_512(bytes: &[u8; BLOCK]) -> Ascii {
        // SAFETY: 64 bytes each, of any alignment.
        let (block, first, second) = unsafe {
            (
                _mm512_loadu_epi8(bytes.as_ptr().cast()),
                _mm512_loadu_epi8(FLAGS.as_ptr().cast()),
                _mm512_loadu_epi8(FLAGS[64..].as_ptr().cast()),
            )
        };
        let high = _mm512_movepi8_mask(block);
        // The lookup passes over the highest bit.
        let found = _mm512_maskz_permutex2var_epi8(!high, first, block, second);
        let of = |flag: u8| _mm512_test_epi8_mask(found, _mm512_set1_epi8(flag as i8));
        Ascii {
            letter: of(LETTER),
            number: of(NUMBER),
            space: of(SPACE),
            newline: of(NEWLINE),
            blank: of(BLANK),
            quote: of(QUOTE),
            high,
        }
    }

    #[derive(Clone, Copy)]
    pub(super) struct Avx2;

    impl Simd for Avx2 {
        #[inline(always)]
        fn classify(self, bytes: &[u8; BLOCK]) -> Ascii {
            // SAFETY: only `with_avx2` makes the value, in a context that has the features.
            unsafe { classify_256(bytes) }
        }
    }

    // A class is a set of bytes, here a union of (set of low halves) × (set of high halves), one bit each.
    const LETTER_1_TO_F: u8 = 1;
    const LETTER_0_TO_A: u8 = 2;
    const DIGIT: u8 = 4;
    const TAB: u8 = 8;
    const LINE_END: u8 = 16;
    const ONLY_BLANK: u8 = 32;
    const ONLY_QUOTE: u8 = 64;

    const fn low_half(half: u8) -> u8 {
        let mut sets = 0;
        if half >= 1 {
            sets |= LETTER_1_TO_F;
        }
        if half <= 0xA {
            sets |= LETTER_0_TO_A;
        }
        if half <= 9 {
            sets |= DIGIT;
        }
        sets | match half {
            0x9 | 0xB | 0xC => TAB,
            0xA | 0xD => LINE_END,
            0x0 => ONLY_BLANK,
            0x7 => ONLY_QUOTE,
            _ => 0,
        }
    }

    const fn high_half(half: u8) -> u8 {
        match half {
            0 => TAB | LINE_END,
            2 => ONLY_BLANK | ONLY_QUOTE,
            3 => DIGIT,
            4 | 6 => LETTER_1_TO_F,
            5 | 7 => LETTER_0_TO_A,
            _ => 0,
        }
    }

    const fn halves(high: bool) -> [u8; 32] {
        let mut table = [0; 32];
        let mut at = 0;
        while at < 32 {
            let half = at as u8 % 16;
            table[at] = if high { high_half(half) } else { low_half(half) };
            at += 1;
        }
        table
    }

    const LOW: [u8; 32] = halves(false);
    const HIGH: [u8; 32] = halves(true);

    #[inline]
    #[target_feature(enable = "avx2")]
    fn classify_256(bytes: &[u8; BLOCK]) -> Ascii {
        // SAFETY: 32 bytes each, of any alignment.
        let (parts, low, high) = unsafe {
            (
                [_mm256_loadu_si256(bytes.as_ptr().cast()), _mm256_loadu_si256(bytes[32..].as_ptr().cast())],
                _mm256_loadu_si256(LOW.as_ptr().cast()),
                _mm256_loadu_si256(HIGH.as_ptr().cast()),
            )
        };
        let half = _mm256_set1_epi8(0x0F);
        let found = parts.map(|part| {
            // A byte of 0x80 or more has a high half of 8 or more, which is in no set.
            let above = _mm256_and_si256(_mm256_srli_epi16::<4>(part), half);
            let below = _mm256_and_si256(part, half);
            _mm256_and_si256(_mm256_shuffle_epi8(low, below), _mm256_shuffle_epi8(high, above))
        });
        let join = |[first, second]: [i32; 2]| u64::from(first as u32) | u64::from(second as u32) << 32;
        let of = |flag: u8| {
            let flag = _mm256_set1_epi8(flag as i8);
            join(found.map(|part| _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_and_si256(part, flag), flag))))
        };
        let blank = of(ONLY_BLANK);
        Ascii {
            letter: of(LETTER_1_TO_F) | of(LETTER_0_TO_A),
            number: of(DIGIT),
            space: of(TAB) | blank,
            newline: of(LINE_END),
            blank,
            quote: of(ONLY_QUOTE),
            high: join(parts.map(|part| _mm256_movemask_epi8(part))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Classify<'a>(&'a [u8; BLOCK]);

    impl Work for Classify<'_> {
        type Output = Ascii;

        #[inline(always)]
        fn run(self, simd: impl Simd) -> Ascii {
            simd.classify(self.0)
        }
    }

    #[test]
    fn all_levels_classify_alike() {
        let levels = Level::available();
        assert_eq!(levels.last(), Some(&Level::best()));
        assert_eq!(Level::named("sse9"), None);
        for first in 0..=255_u8 {
            for step in [0_u8, 1, 3, 64, 97] {
                let mut bytes = [0; BLOCK];
                (0_u8..).zip(&mut bytes).for_each(|(at, byte)| *byte = first.wrapping_add(at.wrapping_mul(step)));
                let expected = run(Level::Scalar, Classify(&bytes));
                for &level in &levels {
                    assert_eq!(Level::named(level.name()), Some(level));
                    assert_eq!(run(level, Classify(&bytes)), expected, "{}, {bytes:?}", level.name());
                }
            }
        }
    }
}
