//! Random numbers and shuffles as numpy's `Generator(Philox)` makes them.
//!
//! Philox-4x64-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), with the
//! counter raised before each block, 32-bit draws from the low half of a word first, and bounds by masked rejection.
//! That is what `Generator.permutation` of an integer does since numpy 1.17; the draws do not depend on the values that
//! are shuffled, so any array may be, and its elements may be fetched ahead.

use crate::simd::prefetch;

const MULTIPLIERS: [u64; 2] = [0xD2E7_470E_E14C_6C93, 0xCA5A_8263_9512_1157];
const WEYL: [u64; 2] = [0x9E37_79B9_7F4A_7C15, 0xBB67_AE85_84CA_A73B];
const ROUNDS: usize = 10;
/// Swaps whose places are drawn before the first of them is done.
const AHEAD: usize = 64;

/// More elements than 32-bit draws can shuffle.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("got {0} elements to shuffle; expected at most {most}", most = u32::MAX)]
pub struct TooMany(
    /// The elements.
    pub usize,
);

/// The generator. What it gave decides what it gives next, the half of a word that is left over included.
#[derive(Clone, Debug)]
pub struct Philox {
    key: [u64; 2],
    counter: [u64; 4],
    words: [u64; 4],
    used: usize,
    half: Option<u32>,
}

impl Philox {
    /// From the two words of `SeedSequence(seed).generate_state(2, numpy.uint64)`.
    #[must_use]
    pub const fn new(key: [u64; 2]) -> Self {
        Self { key, counter: [0; 4], words: [0; 4], used: 4, half: None }
    }

    /// Put `values` in the order of `permutation(len)`: afterwards `values[i]` is what `values[permutation[i]]` was.
    ///
    /// # Errors
    /// More than 2^32 − 1 values; none is moved.
    pub fn shuffle<T: Copy>(&mut self, values: &mut [T]) -> Result<(), TooMany> {
        u32::try_from(values.len()).map_err(|_| TooMany(values.len()))?;
        let mut places = [0_u32; AHEAD];
        let mut top = values.len();
        while top > 1 {
            let count = AHEAD.min(top - 1);
            for (step, place) in places[..count].iter_mut().enumerate() {
                *place = self.up_to((top - 1 - step) as u32);
                prefetch(&values[*place as usize]);
            }
            for &place in &places[..count] {
                top -= 1;
                values.swap(top, place as usize);
            }
        }
        Ok(())
    }

    /// A number of 0 to `last`, which is above 0.
    #[inline]
    fn up_to(&mut self, last: u32) -> u32 {
        let mask = u32::MAX >> last.leading_zeros();
        loop {
            let drawn = self.next() & mask;
            if drawn <= last {
                return drawn;
            }
        }
    }

    #[inline]
    fn next(&mut self) -> u32 {
        if let Some(half) = self.half.take() {
            return half;
        }
        if self.used == self.words.len() {
            self.fill();
        }
        let word = self.words[self.used];
        self.used += 1;
        self.half = Some((word >> 32) as u32);
        word as u32
    }

    #[inline]
    fn fill(&mut self) {
        for word in &mut self.counter {
            *word = word.wrapping_add(1);
            if *word != 0 {
                break;
            }
        }
        let (mut block, mut key) = (self.counter, self.key);
        for round in 0..ROUNDS {
            if round > 0 {
                key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
            }
            let one = u128::from(MULTIPLIERS[0]) * u128::from(block[0]);
            let two = u128::from(MULTIPLIERS[1]) * u128::from(block[2]);
            block = [
                (two >> 64) as u64 ^ block[1] ^ key[0],
                two as u64,
                (one >> 64) as u64 ^ block[3] ^ key[1],
                one as u64,
            ];
        }
        self.words = block;
        self.used = 0;
    }
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use super::*;

    // numpy.random.Philox(0): SeedSequence(0).generate_state(2, uint64), and what Generator.permutation gave of it.
    const KEY: [u64; 2] = [15_793_235_383_387_715_774, 12_390_638_538_380_655_177];

    fn permutation(random: &mut Philox, count: u32) -> Vec<u32> {
        let mut values: Vec<u32> = (0..count).collect();
        random.shuffle(&mut values).expect("few");
        values
    }

    #[test]
    fn permutations_are_those_of_numpy() {
        let mut random = Philox::new(KEY);
        assert!(permutation(&mut random, 0).is_empty());
        assert_eq!(permutation(&mut random, 1), [0]);
        assert_eq!(permutation(&mut random, 10), [8, 0, 3, 7, 6, 4, 1, 5, 2, 9]);
        assert_eq!(permutation(&mut random, 7), [6, 1, 2, 4, 3, 5, 0]);
        let long = permutation(&mut random, 1000);
        let sum: u64 = long.iter().enumerate().map(|(place, &value)| place as u64 * u64::from(value)).sum();
        assert_eq!(sum, 252_853_192);
    }

    #[test]
    fn a_shuffle_takes_every_value_once() {
        for count in [2, 63, 64, 65, 66, 128, 129, 1000] {
            let mut values = permutation(&mut Philox::new([1, count]), count as u32);
            assert!(count == 2 || !values.is_sorted());
            values.sort_unstable();
            assert_eq!(values, (0..count as u32).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_counter_carries() {
        let mut random = Philox::new(KEY);
        random.counter = [u64::MAX, u64::MAX, 5, 0];
        random.fill();
        assert_eq!(random.counter, [0, 0, 6, 0]);
    }
}
