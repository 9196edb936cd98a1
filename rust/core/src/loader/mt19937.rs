//! Permutations as torch's `randperm` draws them on a CPU.
//!
//! MT19937 of Matsumoto and Nishimura, "Mersenne Twister" (ACM TOMACS 8, 1998), begun by `init_genrand` of the low
//! 32 bits of a seed, and a forward Fisher–Yates of whole words modulo what is left (torch 2.9.1). The draws do not
//! depend on the values, whose places may be fetched ahead.

use crate::simd::prefetch;

const WORDS: usize = 624;
const MIDDLE: usize = 397;
/// Swaps whose places are drawn before the first of them is done.
const AHEAD: usize = 64;

/// From so many elements on torch draws 64 bits for each (its source says; no recorded case does).
pub const LIMIT: usize = (u32::MAX / 20) as usize;

/// More elements than are shuffled as torch does.
#[derive(Debug, PartialEq, Eq)]
pub struct TooMany(
    /// The elements.
    pub usize,
);

impl std::fmt::Display for TooMany {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "got {} elements to permute; expected fewer than {LIMIT}: from there on torch draws 64-bit words, which was \
             never compared",
            self.0
        )
    }
}

impl std::error::Error for TooMany {}

/// The generator. Successive permutations continue its stream.
#[derive(Clone, Debug)]
pub struct Mt19937 {
    words: [u32; WORDS],
    used: usize,
}

impl Mt19937 {
    /// `init_genrand(seed)`.
    #[must_use]
    pub const fn new(seed: u32) -> Self {
        let mut words = [seed; WORDS];
        let mut at = 1;
        while at < WORDS {
            let before = words[at - 1];
            words[at] = (before ^ (before >> 30)).wrapping_mul(1_812_433_253).wrapping_add(at as u32);
            at += 1;
        }
        Self { words, used: WORDS }
    }

    /// Fill `out` with the next permutation of 0 … its length − 1. One of no or one element draws nothing.
    ///
    /// # Errors
    /// [`LIMIT`] elements or more; nothing is drawn.
    pub fn randperm(&mut self, out: &mut [i64]) -> Result<(), TooMany> {
        if out.len() >= LIMIT {
            return Err(TooMany(out.len()));
        }
        for (place, value) in out.iter_mut().enumerate() {
            *value = place as i64;
        }
        let mut places = [0_usize; AHEAD];
        let mut first = 0;
        while first + 1 < out.len() {
            let count = AHEAD.min(out.len() - 1 - first);
            for (step, place) in places[..count].iter_mut().enumerate() {
                let here = first + step;
                *place = here + (self.next() % (out.len() - here) as u32) as usize;
                prefetch(&out[*place]);
            }
            for &place in &places[..count] {
                out.swap(first, place);
                first += 1;
            }
        }
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> u32 {
        if self.used == WORDS {
            self.twist();
        }
        let mut word = self.words[self.used];
        self.used += 1;
        word ^= word >> 11;
        word ^= (word << 7) & 0x9D2C_5680;
        word ^= (word << 15) & 0xEFC6_0000;
        word ^ (word >> 18)
    }

    fn twist(&mut self) {
        for at in 0..WORDS {
            let next = self.words[(at + 1) % WORDS];
            let mixed = (self.words[at] & 0x8000_0000) | (next & 0x7FFF_FFFF);
            let odd = if next & 1 == 1 { 0x9908_B0DF } else { 0 };
            self.words[at] = self.words[(at + MIDDLE) % WORDS] ^ (mixed >> 1) ^ odd;
        }
        self.used = 0;
    }
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use super::*;

    fn randperm(random: &mut Mt19937, count: usize) -> Vec<i64> {
        let mut out = vec![-1; count];
        random.randperm(&mut out).expect("few");
        out
    }

    #[test]
    fn words_are_those_of_the_paper() {
        // mt19937ar.out begins with init_by_array; of init_genrand(5489) the 10,000th word is that of C++'s std::mt19937.
        let mut random = Mt19937::new(5489);
        assert_eq!(random.next(), 3_499_211_612);
        let last = (1..10_000).map(|_| random.next()).last();
        assert_eq!(last, Some(4_123_659_995));
    }

    #[test]
    fn permutations_are_those_of_torch() {
        // torch.randperm(n, generator=torch.Generator().manual_seed(0)), one after another.
        let mut random = Mt19937::new(0);
        assert_eq!(randperm(&mut random, 10), [4, 1, 7, 5, 3, 9, 0, 8, 6, 2]);
        assert!(randperm(&mut random, 0).is_empty());
        assert_eq!(randperm(&mut random, 1), [0]);
        assert_eq!(randperm(&mut random, 2), [1, 0]);
        assert_eq!(randperm(&mut random, 7), [2, 3, 1, 6, 5, 4, 0]);
    }

    #[test]
    fn a_permutation_has_every_value_once_and_is_drawn_as_one_by_one() {
        for count in [2, 63, 64, 65, 66, 128, 129, 1000] {
            let (mut ahead, mut single) = (Mt19937::new(7), Mt19937::new(7));
            let mut expected: Vec<i64> = (0..count as i64).collect();
            for at in 0..count - 1 {
                expected.swap(at, at + single.next() as usize % (count - at));
            }
            let mut values = randperm(&mut ahead, count);
            assert_eq!(values, expected);
            assert_eq!(ahead.next(), single.next());
            values.sort_unstable();
            assert_eq!(values, (0..count as i64).collect::<Vec<_>>());
        }
    }
}
