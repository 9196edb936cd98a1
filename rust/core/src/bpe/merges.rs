//! The merges of one piece.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustc_hash::FxHashMap;

/// Up to this many symbols, a piece is scanned for the best merge again and again: that takes no allocation and is faster
/// than a heap. For longer pieces, scanning would be quadratic: a "word" of a megabyte takes hours.
const SCAN_AT_MOST: usize = 64;

/// Ranks that are compared at once.
const LANES: usize = 8;

/// No symbol after this one, no symbol for this byte, or no merge for this pair.
pub(crate) const NONE: u32 = u32::MAX;

/// The maximum number of merges: their ranks leave room for a position. No real vocabulary has more.
pub(crate) const MOST_MERGES: usize = NONE as usize / SCAN_AT_MOST;

/// The merge of this rank at this position, as one number.
#[inline(always)]
fn candidate(rank: u32, at: usize) -> u32 {
    if rank == NONE { NONE } else { rank * SCAN_AT_MOST as u32 + at as u32 }
}

/// A pair of ids and how early it is merged; an empty place has the rank [`NONE`].
#[derive(Clone, Copy)]
struct Pair {
    left: u32,
    right: u32,
    rank: u32,
}

const EMPTY: Pair = Pair { left: NONE, right: NONE, rank: NONE };

/// All merges by pair of ids, and the symbols of bytes.
pub(crate) struct Merges {
    /// The id of each byte's symbol.
    symbols: [u32; 256],
    /// The rank of the merge of two bytes' symbols, at left byte × 256 + right byte: most lookups are of these.
    bytes: Vec<u32>,
    /// The others and these, by open addressing.
    pairs: Vec<Pair>,
    /// What the pair of a rank becomes.
    ids: Vec<u32>,
    /// The id of rank 0, if those of all ranks follow each other, as in a vocabulary just trained.
    consecutive: Option<u32>,
    /// Pieces that are tokens, whatever the merges would make of them.
    whole: FxHashMap<Box<[u8]>, u32>,
}

/// Buffers used again from piece to piece.
#[derive(Default)]
pub(crate) struct Scratch {
    next: Vec<u32>,
    previous: Vec<u32>,
    queue: BinaryHeap<Reverse<(u32, u32)>>,
}

impl Merges {
    /// `symbols` holds the id of each byte's symbol, or [`NONE`]; `merges` holds (left, right, merged) ids by rank. If a
    /// pair is given twice, the later rank counts, as in the reference.
    pub(crate) fn new(symbols: [u32; 256], merges: &[(u32, u32, u32)]) -> Self {
        let pairs = vec![EMPTY; (merges.len() * 2 + 1).next_power_of_two()];
        let ids: Vec<u32> = merges.iter().map(|&(_, _, id)| id).collect();
        let follow = |first: u32| ids.iter().map(|&id| u64::from(id)).eq((u64::from(first)..).take(ids.len()));
        let consecutive = ids.first().copied().filter(|&first| follow(first));
        let mut made =
            Self { symbols, bytes: vec![NONE; 1 << 16], pairs, ids, consecutive, whole: FxHashMap::default() };
        for (rank, &(left, right, _)) in (0..).zip(merges) {
            let place = made.place(left, right);
            made.pairs[place] = Pair { left, right, rank };
        }
        for (at, rank) in (0..).zip(std::mem::take(&mut made.bytes)) {
            let (left, right): (usize, usize) = (at >> 8, at & 0xFF);
            debug_assert_eq!(rank, NONE);
            made.bytes.push(made.rank(symbols[left], symbols[right]));
        }
        made
    }

    /// Have these pieces become these ids without merges.
    pub(crate) fn ignore_for(&mut self, whole: FxHashMap<Box<[u8]>, u32>) {
        self.whole = whole;
    }

    /// The place of the pair, or the free place that it would have.
    #[inline]
    fn place(&self, left: u32, right: u32) -> usize {
        let mask = self.pairs.len() - 1;
        let hash = (u64::from(left) << 32 | u64::from(right)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut at = (hash >> 32) as usize & mask;
        loop {
            let pair = self.pairs[at];
            if pair.left == left && pair.right == right || pair.rank == NONE {
                return at;
            }
            at = (at + 1) & mask;
        }
    }

    #[inline]
    fn rank(&self, left: u32, right: u32) -> u32 {
        self.pairs[self.place(left, right)].rank
    }

    #[inline]
    fn id(&self, rank: usize) -> u32 {
        match self.consecutive {
            Some(first) => first + rank as u32,
            None => self.ids[rank],
        }
    }

    /// Append the ids of `piece`: lowest rank first, at equal rank the leftmost.
    ///
    /// Returns how many bytes have no symbol; they vanish, and the symbols around them may merge.
    #[inline(always)]
    pub(crate) fn encode(&self, piece: &[u8], ids: &mut Vec<u32>, scratch: &mut Scratch) -> u64 {
        if !self.whole.is_empty()
            && let Some(&id) = self.whole.get(piece)
        {
            ids.push(id);
            return 0;
        }
        let left = if piece.len() <= SCAN_AT_MOST {
            self.encode_by_scan(piece, ids)
        } else {
            self.encode_by_heap(piece, ids, scratch)
        };
        (piece.len() - left) as u64
    }

    /// Returns how many bytes have a symbol.
    #[inline(always)]
    fn encode_by_scan(&self, piece: &[u8], ids: &mut Vec<u32>) -> usize {
        let mut symbols = [0; SCAN_AT_MOST];
        // At i the merge of the symbol i with the one after it: rank × 64 + i, so that the least is the leftmost of the
        // lowest rank. NONE also where the symbol was merged away.
        let mut merges = [NONE; SCAN_AT_MOST];
        let mut length = 0;
        let mut before = 0;
        for &byte in piece {
            let symbol = self.symbols[usize::from(byte)];
            if symbol == NONE {
                continue;
            }
            symbols[length % SCAN_AT_MOST] = symbol;
            if length > 0 {
                let at = (length - 1) % SCAN_AT_MOST;
                merges[at] = candidate(self.bytes[before << 8 | usize::from(byte)], at);
            }
            before = usize::from(byte);
            length += 1;
        }
        // Symbols are left where they are, and linked: moving them costs more than scanning over the gaps.
        let mut next: [u8; SCAN_AT_MOST] = std::array::from_fn(|at| at as u8 + 1);
        let mut previous: [u8; SCAN_AT_MOST] = std::array::from_fn(|at| (at as u8).wrapping_sub(1));
        let groups = length.div_ceil(LANES);
        loop {
            let mut least = [NONE; LANES];
            for group in &merges.as_chunks::<LANES>().0[..groups] {
                least.iter_mut().zip(group).for_each(|(least, &merge)| *least = merge.min(*least));
            }
            let best = least.into_iter().fold(NONE, u32::min);
            if best == NONE {
                break;
            }
            let at = best as usize % SCAN_AT_MOST;
            let symbol = self.id(best as usize / SCAN_AT_MOST);
            let right = usize::from(next[at]) % SCAN_AT_MOST;
            let after = usize::from(next[right]);
            symbols[at] = symbol;
            next[at] = after as u8;
            merges[right] = NONE;
            merges[at] = NONE;
            if after < length {
                previous[after % SCAN_AT_MOST] = at as u8;
                merges[at] = candidate(self.rank(symbol, symbols[after % SCAN_AT_MOST]), at);
            }
            if at > 0 {
                let before = usize::from(previous[at]) % SCAN_AT_MOST;
                merges[before] = candidate(self.rank(symbols[before], symbol), before);
            }
        }
        let mut at = 0;
        while at < length {
            ids.push(symbols[at % SCAN_AT_MOST]);
            at = usize::from(next[at % SCAN_AT_MOST]);
        }
        length
    }

    /// Returns how many bytes have a symbol.
    fn encode_by_heap(&self, piece: &[u8], ids: &mut Vec<u32>, scratch: &mut Scratch) -> usize {
        let start = ids.len();
        ids.extend(piece.iter().map(|&byte| self.symbols[usize::from(byte)]).filter(|&id| id != NONE));
        let length = ids.len() - start;
        let left = self.merge_by_heap(&mut ids[start..], scratch);
        ids.truncate(start + left);
        length
    }

    /// Returns how many of `ids` are left, in front. O(n log n): a linked list of the symbols and a heap of the
    /// possible merges, in which outdated ones are skipped.
    fn merge_by_heap(&self, ids: &mut [u32], scratch: &mut Scratch) -> usize {
        let Scratch { next, previous, queue } = scratch;
        let length = ids.len() as u32;
        next.clear();
        next.extend(1..=length);
        if let Some(last) = next.last_mut() {
            *last = NONE;
        }
        previous.clear();
        previous.push(NONE);
        previous.extend(0..length.saturating_sub(1));
        queue.clear();
        for (position, pair) in (0..).zip(ids.windows(2)) {
            let rank = self.rank(pair[0], pair[1]);
            if rank != NONE {
                queue.push(Reverse((rank, position)));
            }
        }
        while let Some(Reverse((rank, position))) = queue.pop() {
            let at = position as usize;
            let right = next[at];
            // A symbol swallowed by the one before it has the id NONE, for which there is no merge.
            if right == NONE || self.rank(ids[at], ids[right as usize]) != rank {
                continue;
            }
            ids[at] = self.id(rank as usize);
            ids[right as usize] = NONE;
            let after = next[right as usize];
            next[at] = after;
            if after != NONE {
                previous[after as usize] = position;
                let rank = self.rank(ids[at], ids[after as usize]);
                if rank != NONE {
                    queue.push(Reverse((rank, position)));
                }
            }
            let before = previous[at];
            if before != NONE {
                let rank = self.rank(ids[before as usize], ids[at]);
                if rank != NONE {
                    queue.push(Reverse((rank, before)));
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

    /// The bytes 0, 1, … have the symbols 0, 1, …
    fn symbols(count: u32) -> [u32; 256] {
        let mut symbols = [NONE; 256];
        (0..count).zip(&mut symbols).for_each(|(id, symbol)| *symbol = id);
        symbols
    }

    #[test]
    fn scan_and_heap_agree() {
        for seed in 0..200 {
            let mut draw = numbers(seed, 12);
            let pairs: Vec<_> = (3..12).map(|id| (draw() % id, draw() % id, id)).collect();
            let merges = Merges::new(symbols(3), &pairs);
            for length in [2, 3, 10, 64] {
                let piece: Vec<u8> = (0..length).map(|_| (draw() % 4) as u8).collect();
                let mut scanned = vec![7];
                let dropped = merges.encode(&piece, &mut scanned, &mut Scratch::default());
                assert_eq!(dropped, piece.iter().filter(|&&byte| byte == 3).count() as u64);
                let mut heaped: Vec<u32> = piece.iter().filter(|&&byte| byte < 3).map(|&byte| byte.into()).collect();
                let left = merges.merge_by_heap(&mut heaped, &mut Scratch::default());
                assert_eq!(scanned[1..], heaped[..left]);
            }
        }
    }

    #[test]
    fn equal_ranks_go_leftmost_first() {
        let merges = Merges::new(symbols(1), &[(0, 0, 1)]);
        for length in [1, 2, 3, 63, 64, 65, 101] {
            let mut ids = vec![7, 7];
            merges.encode(&vec![0; length], &mut ids, &mut Scratch::default());
            let mut expected = vec![7, 7];
            expected.extend(vec![1; length / 2]);
            expected.extend(vec![0; length % 2]);
            assert_eq!(ids, expected);
        }
    }

    #[test]
    fn ids_need_not_ascend_with_ranks() {
        let last = NONE - 1;
        for ids in [[2, 3, 4, 5], [2, 4, 3, 5], [2, 3, 4, 9], [last, 2, 3, 4], [last - 3, last - 2, last - 1, last]] {
            let pairs: Vec<_> =
                [(0, 0), (0, 1), (1, 0), (1, 1)].into_iter().zip(ids).map(|((a, b), id)| (a, b, id)).collect();
            let merges = Merges::new(symbols(2), &pairs);
            for (piece, &id) in [[0, 0], [0, 1], [1, 0], [1, 1]].iter().zip(&ids) {
                let mut scanned = Vec::new();
                merges.encode(piece, &mut scanned, &mut Scratch::default());
                let mut heaped = piece.map(u32::from);
                assert_eq!(merges.merge_by_heap(&mut heaped, &mut Scratch::default()), 1);
                assert_eq!((scanned, heaped[0]), (vec![id], id));
            }
        }
    }

    #[test]
    fn the_later_of_two_ranks_counts() {
        let merges = Merges::new(symbols(3), &[(0, 1, 3), (1, 2, 4), (0, 1, 3)]);
        let mut ids = Vec::new();
        merges.encode(&[0, 1, 2], &mut ids, &mut Scratch::default());
        assert_eq!(ids, [0, 4]);
    }
}
