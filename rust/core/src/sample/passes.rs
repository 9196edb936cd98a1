//! How often each row of a plan is in its epochs, in one byte a row.

use crate::simd::prefetch;

/// Places that are fetched ahead: they are anywhere in memory.
const AHEAD: usize = 32;

/// Count each place once more; a count stays at 255. Return the first place that is not among the counts.
///
/// # Errors
/// A place is not among them; those before it are counted.
pub fn add(counts: &mut [u8], places: &[u32]) -> Result<(), u32> {
    for (at, &place) in places.iter().enumerate() {
        if let Some(count) = places.get(at + AHEAD).and_then(|&later| counts.get(later as usize)) {
            prefetch(count);
        }
        let count = counts.get_mut(place as usize).ok_or(place)?;
        *count = count.saturating_add(1);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_stay_at_their_largest() {
        let mut counts = [0, 254, 3];
        assert_eq!(add(&mut counts, &[1, 2, 1, 0, 1]), Ok(()));
        assert_eq!(counts, [1, 255, 4]);
        assert_eq!(add(&mut counts, &[0, 3]), Err(3));
        assert_eq!(counts, [2, 255, 4]);
    }
}
