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
pub(super) const AHEAD: usize = 64;
/// Blocks that are made at once: they do not depend on each other, so a processor makes them side by side.
const BLOCKS: usize = 8;
const DRAWS: usize = BLOCKS * 8;

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
    drawn: [u32; DRAWS],
    used: usize,
}

impl Philox {
    /// From the two words of `SeedSequence(seed).generate_state(2, numpy.uint64)`.
    #[must_use]
    pub const fn new(key: [u64; 2]) -> Self {
        Self { key, counter: [0; 4], drawn: [0; DRAWS], used: DRAWS }
    }

    /// A stream of its own for each seed and name: its key is the first 16 bytes of BLAKE3 over both.
    #[must_use]
    pub fn named(seed: &str, name: &str) -> Self {
        let digest = blake3::hash(format!("{seed}\0{name}").as_bytes());
        let words = digest.as_bytes().as_chunks::<8>().0;
        Self::new([u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1])])
    }

    /// A number below `count`, which is above 0: Lemire, "Fast random integer generation in an interval" (TOMACS 2019).
    #[inline]
    pub fn below(&mut self, count: u32) -> u32 {
        let mut wide = u64::from(self.draw()) * u64::from(count);
        if (wide as u32) < count {
            let floor = count.wrapping_neg() % count;
            while (wide as u32) < floor {
                wide = u64::from(self.draw()) * u64::from(count);
            }
        }
        (wide >> 32) as u32
    }

    /// Put `values` in the order of `permutation(len)`: afterwards `values[i]` is what `values[permutation[i]]` was.
    ///
    /// # Errors
    /// More than 2^32 − 1 values; none is moved.
    pub fn shuffle<T: Copy>(&mut self, values: &mut [T]) -> Result<(), TooMany> {
        u32::try_from(values.len()).map_err(|_| TooMany(values.len()))?;
        self.exchange(values, Self::up_to);
        Ok(())
    }

    /// Shuffle `values`; faster than [`Self::shuffle`], in an order of our own.
    pub fn scatter<T: Copy>(&mut self, values: &mut [T]) {
        self.exchange(values, |random, last| random.below(last + 1));
    }

    /// Exchange each value, from the last on, with one of those up to it: the place that `pick` draws, 0 to its own.
    #[inline]
    fn exchange<T: Copy>(&mut self, values: &mut [T], pick: impl Fn(&mut Self, u32) -> u32) {
        let mut places = [0_u32; AHEAD];
        let mut top = values.len();
        while top > 1 {
            let count = AHEAD.min(top - 1);
            for (step, place) in places[..count].iter_mut().enumerate() {
                *place = pick(self, (top - 1 - step) as u32);
                prefetch(&values[*place as usize]);
            }
            for &place in &places[..count] {
                top -= 1;
                values.swap(top, place as usize);
            }
        }
    }

    /// A number of 0 to `last`, which is above 0.
    #[inline]
    fn up_to(&mut self, last: u32) -> u32 {
        let mask = u32::MAX >> last.leading_zeros();
        loop {
            let drawn = self.draw() & mask;
            if drawn <= last {
                return drawn;
            }
        }
    }

    /// The next 32 bits.
    #[inline]
    pub fn draw(&mut self) -> u32 {
        if self.used == DRAWS {
            self.fill();
        }
        self.used += 1;
        self.drawn[self.used - 1]
    }

    fn fill(&mut self) {
        let mut blocks = [[0; 4]; BLOCKS];
        for block in &mut blocks {
            for word in &mut self.counter {
                *word = word.wrapping_add(1);
                if *word != 0 {
                    break;
                }
            }
            *block = self.counter;
        }
        let mut key = self.key;
        for _ in 0..ROUNDS {
            for block in &mut blocks {
                let low = u128::from(MULTIPLIERS[0]) * u128::from(block[0]);
                let high = u128::from(MULTIPLIERS[1]) * u128::from(block[2]);
                *block = [
                    (high >> 64) as u64 ^ block[1] ^ key[0],
                    high as u64,
                    (low >> 64) as u64 ^ block[3] ^ key[1],
                    low as u64,
                ];
            }
            key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
        }
        for (pair, word) in self.drawn.chunks_exact_mut(2).zip(blocks.as_flattened()) {
            pair.copy_from_slice(&[*word as u32, (word >> 32) as u32]);
        }
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
        assert_eq!(random.counter, [7, 0, 6, 0]);
    }

    #[test]
    fn numbers_below_a_bound_are_equally_frequent() {
        let mut random = Philox::named("7", "name");
        for bound in [1, 3, 10] {
            let mut counts = vec![0_u32; bound as usize];
            (0..30_000).for_each(|_| counts[random.below(bound) as usize] += 1);
            let mean = 30_000.0 / f64::from(bound);
            let chi: f64 = counts.iter().map(|&count| (f64::from(count) - mean).powi(2) / mean).sum();
            assert!(chi < 30.0, "{counts:?}"); // of 9 degrees of freedom: 4e-4
        }
        assert_ne!(Philox::named("7", "a").draw(), Philox::named("7", "b").draw());
        assert_ne!(Philox::named("7", "a").draw(), Philox::named("8", "a").draw());
    }
}
