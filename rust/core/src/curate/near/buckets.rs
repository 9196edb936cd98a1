//! Candidates from keys: rows that share one.

use super::Alive;
use super::signature::{BAND, EQUAL, KIND, SAMPLED};

/// The largest bucket whose members are all compared with each other, and the best-ranked members of a larger one, which
/// all others are compared with.
pub const SMALL: usize = 16;
const PROBES: usize = 4;
/// Rows of equal tokens are all duplicates of the first one.
const PROBES_OF_EQUAL: usize = 2;
/// The best-ranked members of a bucket that all others are compared with where families are not refined.
const MOST: usize = 2_000;
/// A gram that more documents have is boilerplate.
const COMMON: usize = 64;
/// About so many keys are sorted at once, which a processor's cache holds.
const TOGETHER: usize = 1 << 15;
/// Parts, as a power of two: where keys are written to more places at once, each write misses the cache.
const PARTS: u32 = 10;

/// Pairs of ids, sorted and distinct.
#[derive(Default)]
struct Pairs {
    pairs: Vec<(u64, u64)>,
    distinct: usize,
}

impl Pairs {
    fn push(&mut self, first: u64, second: u64) {
        self.pairs.push((first, second));
        // Rows that share a key share many.
        if self.pairs.len() >= self.distinct * 2 + (1 << 22) {
            self.settle();
        }
    }

    fn settle(&mut self) {
        self.pairs.sort_unstable();
        self.pairs.dedup();
        self.distinct = self.pairs.len();
    }

    fn finish(mut self) -> Vec<(u64, u64)> {
        self.settle();
        self.pairs.shrink_to_fit();
        self.pairs
    }
}

/// What the buckets give.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Candidates {
    /// Pairs to compare, the smaller id first, sorted and distinct.
    pub edges: Vec<(u64, u64)>,
    /// Anchors and members of families, sorted and distinct.
    pub families: Vec<(u64, u64)>,
}

/// Candidates from keys and the ids of their rows, equally many. Two ids below `fixed` are never compared.
///
/// Without `refine` there are no families, and all members of a bucket are compared: rows that are added later then
/// change nothing among those before them. A row is compared with `keep` others at least: so many may have to be like it.
pub fn candidates(keys: &[u64], ids: &[u64], fixed: u64, refine: bool, keep: usize, alive: Alive<'_>) -> Candidates {
    let (mut edges, mut families) = (Pairs::default(), Pairs::default());
    let mut members = Vec::new();
    grouped(keys, ids, alive, |part| {
        part.sort_unstable();
        for bucket in part.chunk_by(|left, right| left.0 == right.0) {
            let Some(&(key, first)) = bucket.first().filter(|_| bucket.len() > 1) else { continue };
            members.clear();
            members.extend(bucket.iter().map(|&(_, id)| id));
            members.dedup();
            // Rows that are never compared need no family.
            if refine
                && members.len() > SMALL
                && key & KIND == BAND
                && members.last().is_some_and(|&last| last >= fixed)
            {
                members.iter().for_each(|&member| families.push(first, member));
            }
            pair(&members, key & KIND, fixed, refine, keep, &mut edges);
        }
    });
    Candidates { edges: edges.finish(), families: families.finish() }
}

/// The pairs of a bucket, whose members ascend.
fn pair(members: &[u64], kind: u64, fixed: u64, refine: bool, keep: usize, edges: &mut Pairs) {
    let probes = match kind {
        SAMPLED if members.len() > COMMON => return,
        _ if !refine => MOST,
        EQUAL => PROBES_OF_EQUAL,
        _ if members.len() > SMALL => PROBES,
        _ => SMALL,
    };
    let probes = probes.max(keep);
    for (place, &member) in members.iter().enumerate() {
        if member >= fixed {
            members[..place].iter().take(probes).for_each(|&probe| edges.push(probe, member));
        }
    }
}

/// Call `each` with parts of the keys and ids; all that have the same key are in one.
fn grouped(keys: &[u64], ids: &[u64], alive: Alive<'_>, mut each: impl FnMut(&mut [(u64, u64)])) {
    // Of keys that share their highest bits, as one partition's do, the next ones tell the parts apart.
    let (low, high) = keys.iter().fold((u64::MAX, 0), |(low, high), &key| (low.min(key), high.max(key)));
    let skipped = (low ^ high).leading_zeros();
    let bits = (keys.len() / TOGETHER).max(1).ilog2().min(64 - skipped.min(63)).min(PARTS);
    let part_of = |key: u64| if bits == 0 { 0 } else { (key << skipped >> (64 - bits)) as usize };
    let mut ends = vec![0_usize; (1 << bits) + 1];
    for &key in keys {
        ends[part_of(key) + 1] += 1;
    }
    for part in 1..ends.len() {
        ends[part] += ends[part - 1];
    }
    let mut sorted = vec![(0, 0); keys.len()];
    let starts = ends.clone();
    for (&key, &id) in keys.iter().zip(ids) {
        let place = &mut ends[part_of(key)];
        if let Some(entry) = sorted.get_mut(*place) {
            *entry = (key, id);
        }
        *place += 1;
    }
    for range in starts.windows(2) {
        if !alive() {
            return;
        }
        if let [start, end] = *range
            && let Some(part) = sorted.get_mut(start..end)
        {
            each(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(keys: &[(u64, u64)], fixed: u64) -> Candidates {
        let (keys, ids): (Vec<u64>, Vec<u64>) = keys.iter().copied().unzip();
        candidates(&keys, &ids, fixed, true, 1, &mut || true)
    }

    fn unrefined(keys: &[(u64, u64)], fixed: u64) -> Candidates {
        let (keys, ids): (Vec<u64>, Vec<u64>) = keys.iter().copied().unzip();
        candidates(&keys, &ids, fixed, false, 1, &mut || true)
    }

    #[test]
    fn all_members_of_a_small_bucket_are_compared_but_for_fixed_ones() {
        let found = of(&[(8, 30), (4, 1), (8, 10), (8, 20), (12, 2), (8, 10)], 0);
        assert_eq!(found, Candidates { edges: vec![(10, 20), (10, 30), (20, 30)], families: vec![] });
        assert_eq!(of(&[(8, 30), (8, 10), (8, 20)], 21).edges, [(10, 30), (20, 30)]);
        assert_eq!(of(&[], 0), Candidates::default());
    }

    #[test]
    fn members_of_a_large_bucket_are_compared_with_the_best_and_make_a_family() {
        let bucket = |kind: u64, members: u64| (0..members).map(|id| (!KIND | kind, id)).collect::<Vec<_>>();
        let found = of(&bucket(BAND, 100), 0);
        assert_eq!(found.edges.len(), 1 + 2 + 3 + 96 * PROBES);
        assert!(found.edges.contains(&(3, 99)) && !found.edges.contains(&(4, 99)));
        assert_eq!(found.families, (0..100).map(|id| (0, id)).collect::<Vec<_>>());
        assert_eq!(of(&bucket(SAMPLED, 100), 0), Candidates::default());
        assert_eq!(of(&bucket(SAMPLED, 50), 0).families, []);
        let equal = of(&bucket(EQUAL, 100), 0);
        assert_eq!((equal.edges.len(), equal.families.len()), (1 + 98 * PROBES_OF_EQUAL, 0));
    }

    #[test]
    fn a_bucket_of_fixed_rows_alone_gives_nothing() {
        let bucket: Vec<(u64, u64)> = (0..100).map(|id| (8, id)).collect();
        assert_eq!(of(&bucket, 100), Candidates::default());
        assert_eq!(of(&bucket, 99).families.len(), 100);
    }

    #[test]
    fn without_refinement_all_members_of_a_bucket_are_compared_with_the_best_ones() {
        for kind in [BAND, EQUAL] {
            let bucket = |members: u64| (0..members).map(|id| (8 | kind, id)).collect::<Vec<_>>();
            let found = unrefined(&bucket(100), 0);
            assert_eq!((found.edges.len(), found.families.len()), (100 * 99 / 2, 0));
            let most = MOST as u64;
            assert_eq!(unrefined(&bucket(most + 10), most).edges.len(), 10 * MOST);
        }
    }

    #[test]
    fn many_keys_give_what_few_give() {
        let keys: Vec<(u64, u64)> = (0..200_000).map(|id| (super::super::grams::mix(id / 2, 7) & !KIND, id)).collect();
        for shift in [0, 9, 40] {
            let keys: Vec<(u64, u64)> = keys.iter().map(|&(key, id)| (key >> shift & !KIND, id)).collect();
            let edges = of(&keys, 0).edges;
            assert!((0..100_000).all(|pair| edges.binary_search(&(2 * pair, 2 * pair + 1)).is_ok()));
        }
    }
}
