//! The merges of one piece.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustc_hash::FxHashMap;

/// Pieces up to this many symbols are scanned for the best merge again and again: no allocation, and quicker than a
/// heap. Beyond, scanning would be quadratic: a "word" of a megabyte takes hours.
const SCAN_AT_MOST: usize = 64;

/// No symbol after this one, or no merge for this pair.
const NONE: u32 = u32::MAX;

/// What a pair of ids becomes, and how early.
#[derive(Clone, Copy)]
struct Merge {
    rank: u32,
    id: u32,
}

const NO_MERGE: Merge = Merge { rank: NONE, id: NONE };

/// All merges by pair of ids.
pub(crate) struct Merges {
    pairs: FxHashMap<(u32, u32), Merge>,
}

/// Buffers used again from piece to piece.
#[derive(Default)]
pub(crate) struct Scratch {
    ranks: Vec<Merge>,
    next: Vec<u32>,
    previous: Vec<u32>,
    queue: BinaryHeap<Reverse<(u32, u32)>>,
}

impl Merges {
    /// `merges` holds (left, right, merged) ids by rank; of a pair given twice the later rank holds, as in the
    /// reference.
    pub(crate) fn new(merges: impl ExactSizeIterator<Item = (u32, u32, u32)>) -> Self {
        let pairs = (0..).zip(merges).map(|(rank, (left, right, id))| ((left, right), Merge { rank, id })).collect();
        Self { pairs }
    }

    #[inline]
    fn get(&self, left: u32, right: u32) -> Merge {
        self.pairs.get(&(left, right)).copied().unwrap_or(NO_MERGE)
    }

    /// Merge `ids` from `start` on, in place: lowest rank first, at equal rank the leftmost.
    pub(crate) fn apply(&self, ids: &mut Vec<u32>, start: usize, scratch: &mut Scratch) {
        let length = if ids.len() - start <= SCAN_AT_MOST {
            self.apply_by_scan(&mut ids[start..], scratch)
        } else {
            self.apply_by_heap(&mut ids[start..], scratch)
        };
        ids.truncate(start + length);
    }

    /// Returns how many of `ids` are left, at the front.
    fn apply_by_scan(&self, ids: &mut [u32], scratch: &mut Scratch) -> usize {
        let ranks = &mut scratch.ranks;
        ranks.clear();
        ranks.extend(ids.windows(2).map(|pair| self.get(pair[0], pair[1])));
        let mut length = ids.len();
        loop {
            let mut best = NO_MERGE;
            let mut at = 0;
            for (position, merge) in ranks.iter().enumerate() {
                if merge.rank < best.rank {
                    best = *merge;
                    at = position;
                }
            }
            if best.rank == NONE {
                return length;
            }
            ids[at] = best.id;
            ids.copy_within(at + 2..length, at + 1);
            length -= 1;
            ranks.remove(at);
            if at + 1 < length {
                ranks[at] = self.get(ids[at], ids[at + 1]);
            }
            if at > 0 {
                ranks[at - 1] = self.get(ids[at - 1], ids[at]);
            }
        }
    }

    /// As `apply_by_scan`, in O(n log n): a linked list of the symbols and a heap of the merges possible, of which
    /// outdated ones are passed over.
    fn apply_by_heap(&self, ids: &mut [u32], scratch: &mut Scratch) -> usize {
        let Scratch { next, previous, queue, .. } = scratch;
        let length = ids.len() as u32;
        next.clear();
        next.extend(1..=length);
        if let Some(last) = next.last_mut() {
            *last = NONE;
        }
        previous.clear();
        previous.push(NONE);
        previous.extend(0..length - 1);
        queue.clear();
        for (position, pair) in (0..).zip(ids.windows(2)) {
            let merge = self.get(pair[0], pair[1]);
            if merge.rank != NONE {
                queue.push(Reverse((merge.rank, position)));
            }
        }
        while let Some(Reverse((rank, position))) = queue.pop() {
            let at = position as usize;
            let right = next[at];
            // A symbol swallowed by the one before it has the id NONE, for which there is no merge.
            if right == NONE {
                continue;
            }
            let merge = self.get(ids[at], ids[right as usize]);
            if merge.rank != rank {
                continue;
            }
            ids[at] = merge.id;
            ids[right as usize] = NONE;
            let after = next[right as usize];
            next[at] = after;
            if after != NONE {
                previous[after as usize] = position;
                let merge = self.get(ids[at], ids[after as usize]);
                if merge.rank != NONE {
                    queue.push(Reverse((merge.rank, position)));
                }
            }
            let before = previous[at];
            if before != NONE {
                let merge = self.get(ids[before as usize], ids[at]);
                if merge.rank != NONE {
                    queue.push(Reverse((merge.rank, before)));
                }
            }
        }
        let mut kept = 0;
        for position in 0..ids.len() {
            if ids[position] != NONE {
                ids[kept] = ids[position];
                kept += 1;
            }
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small generator of numbers below `bound`, the same in every run.
    fn numbers(seed: u64, bound: u32) -> impl FnMut() -> u32 {
        let mut state = seed;
        move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) % u64::from(bound)) as u32
        }
    }

    #[test]
    fn scan_and_heap_agree() {
        for seed in 0..200 {
            let mut draw = numbers(seed, 12);
            let merges = Merges::new((3..12).map(|id| (draw() % id, draw() % id, id)).collect::<Vec<_>>().into_iter());
            for length in [2, 3, 10, 64] {
                let piece: Vec<u32> = (0..length).map(|_| draw() % 3).collect();
                let (mut scanned, mut heaped) = (piece.clone(), piece);
                let scanned_length = merges.apply_by_scan(&mut scanned, &mut Scratch::default());
                let heaped_length = merges.apply_by_heap(&mut heaped, &mut Scratch::default());
                assert_eq!(scanned[..scanned_length], heaped[..heaped_length]);
            }
        }
    }

    #[test]
    fn equal_ranks_go_leftmost_first() {
        let merges = Merges::new([(0, 0, 1)].into_iter());
        for length in [3, 101] {
            let mut ids = vec![7, 7];
            ids.extend(vec![0; length]);
            merges.apply(&mut ids, 2, &mut Scratch::default());
            let mut expected = vec![7, 7];
            expected.extend(vec![1; length / 2]);
            expected.push(0);
            assert_eq!(ids, expected);
        }
    }
}
