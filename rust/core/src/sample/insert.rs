//! Where the rows that a plan adds to another come in an epoch. A uniform order of them, put at uniformly random places
//! of a uniform order of the others, is a uniform order of all.

use super::philox::Philox;

/// Draw `count` different numbers below `total`, in ascending order; all sets of so many are equally likely. At most
/// `total` are drawn. It takes 4 bytes for each number, or for each of the others if these are fewer.
#[must_use]
pub fn places(random: &mut Philox, count: u32, total: u32) -> Vec<u32> {
    if count > total / 2 {
        let mut others = places(random, total - count.min(total), total).into_iter().peekable();
        return (0..total).filter(|place| others.next_if_eq(place).is_none()).collect();
    }
    let mut drawn = Vec::with_capacity(count as usize);
    // As if they were drawn one by one, and those that are there already were drawn again.
    while drawn.len() < count as usize {
        let missing = count as usize - drawn.len();
        drawn.extend((0..missing).map(|_| random.below(total)));
        drawn.sort_unstable();
        drawn.dedup();
    }
    drawn
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn all_sets_are_equally_frequent() {
        for count in 0..=5 {
            let mut random = Philox::named("3", &count.to_string());
            let mut counts = HashMap::<Vec<u32>, u32>::new();
            (0..10_000).for_each(|_| *counts.entry(places(&mut random, count, 5)).or_default() += 1);
            let sets = [1, 5, 10, 10, 5, 1][count as usize];
            assert_eq!(counts.len(), sets);
            assert!(counts.keys().all(|set| set.len() == count as usize && set.is_sorted_by(|a, b| a < b)));
            let mean = 10_000.0 / sets as f64;
            let chi: f64 = counts.values().map(|&count| (f64::from(count) - mean).powi(2) / mean).sum();
            assert!(chi < 30.0, "{count}: {chi}"); // of 9 degrees of freedom: 4e-4
        }
        assert!(places(&mut Philox::named("3", ""), 0, 0).is_empty());
    }
}
