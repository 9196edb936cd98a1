//! Permutations as torch's `randperm` draws them on a CPU.
//!
//! A forward Fisher–Yates shuffle by whole words of MT19937, modulo the number of elements that are left (torch 2.9.1).
//! The draws do not depend on the values, so the places of the values can be fetched ahead.

use rand_mt::Mt;

use crate::simd::prefetch;

/// Swaps whose places are drawn before the first of them is done.
const AHEAD: usize = 64;

/// With this many elements or more, torch draws 64 bits for each (its source says so; no recorded case does).
pub const LIMIT: usize = (u32::MAX / 20) as usize;

/// More elements than are shuffled as torch does.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "got {0} elements to permute; expected fewer than {LIMIT}: from there on torch draws 64-bit words, which was never \
     compared"
)]
pub struct TooMany(
    /// The elements.
    pub usize,
);

/// The generator. Successive permutations continue its stream.
#[derive(Clone, Debug)]
pub struct Mt19937(Mt);

impl Mt19937 {
    /// From the low 32 bits of a seed (`init_genrand`).
    #[must_use]
    pub fn new(seed: u32) -> Self {
        Self(Mt::new(seed))
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
                *place = here + (self.0.next_u32() % (out.len() - here) as u32) as usize;
                prefetch(&out[*place]);
            }
            for &place in &places[..count] {
                out.swap(first, place);
                first += 1;
            }
        }
        Ok(())
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
                expected.swap(at, at + single.0.next_u32() as usize % (count - at));
            }
            let mut values = randperm(&mut ahead, count);
            assert_eq!(values, expected);
            assert_eq!(ahead.0.next_u32(), single.0.next_u32());
            values.sort_unstable();
            assert_eq!(values, (0..count as i64).collect::<Vec<_>>());
        }
    }
}
