//! The ids of pieces seen before. One cache belongs to one thread; it changes speed only, never an id.

use rustc_hash::FxHashMap;

use crate::bpe::key::Key;
use crate::bpe::merges::{Merges, Scratch};
use crate::pages::vec_with_capacity;
use crate::simd::prefetch;

/// Longer pieces than this are nearly always unique, and would fill the memory for nothing.
const LONGEST: usize = 256;
/// Bounds of the memory: 32 MB of table, 16 MB of ids, and about as much of long pieces. Past one of them all is
/// forgotten.
const MOST_SLOTS: usize = 1 << 20;
const MOST_IDS: usize = 1 << 22;
const MOST_LONG: usize = 1 << 17;
const FIRST_SLOTS: usize = 1 << 12;

/// Pieces whose places in the table are fetched together: long enough for the memory to answer, short enough to stay
/// in the nearest cache.
const BATCH: usize = 64;

/// Ids that a slot holds itself.
const INLINE: usize = 3;
/// In place of a number of ids: there are more of them, or bytes without symbols among them.
const ELSEWHERE: u32 = INLINE as u32 + 1;
/// In place of a number of ids: nothing here.
const NOTHING: u32 = ELSEWHERE + 1;

/// A piece, up to three ids, and how many they are; or where in the list of ids they start, their number, and how many
/// bytes have no symbol.
#[derive(Clone, Copy)]
#[repr(C)]
struct Slot {
    key: Key,
    ids: [u32; INLINE],
    count: u32,
}

const EMPTY: Slot = Slot { key: Key::NONE, ids: [0; INLINE], count: NOTHING };

/// Two slots in one cache line, of which the first is taken first: either is looked at without a branch that could be
/// guessed wrong.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Bucket([Slot; 2]);

/// Slots by open addressing, a power of two of them.
struct Table {
    buckets: Vec<Bucket>,
    used: usize,
}

impl Table {
    fn new(slots: usize) -> Self {
        let mut buckets = vec_with_capacity(slots / 2);
        buckets.resize(slots / 2, Bucket([EMPTY; 2]));
        Self { buckets, used: 0 }
    }

    fn slots(&self) -> usize {
        self.buckets.len() * 2
    }

    #[inline(always)]
    fn home(&self, hash: usize) -> &Bucket {
        &self.buckets[hash & (self.buckets.len() - 1)]
    }

    /// The slot of `key`, or an empty one.
    #[inline(always)]
    fn find(&self, hash: usize, key: Key) -> &Slot {
        let mask = self.buckets.len() - 1;
        let mut at = hash & mask;
        loop {
            let Bucket(bucket) = &self.buckets[at];
            let slot = &bucket[usize::from(bucket[1].key == key)];
            if slot.key == key {
                return slot;
            }
            if bucket[1].count == NOTHING {
                return &bucket[1];
            }
            at = (at + 1) & mask;
        }
    }

    /// Add a slot whose key is not there.
    fn put(&mut self, slot: Slot) {
        if self.used >= self.slots() / 2 {
            let doubled = Self::new(self.slots() * 2);
            let old = std::mem::replace(self, doubled);
            let slots = old.buckets.iter().flat_map(|Bucket(slots)| slots);
            slots.filter(|slot| slot.count != NOTHING).for_each(|&slot| self.put(slot));
        }
        let mask = self.buckets.len() - 1;
        let mut at = slot.key.hash() & mask;
        loop {
            if let Some(free) = self.buckets[at].0.iter_mut().find(|slot| slot.count == NOTHING) {
                *free = slot;
                self.used += 1;
                return;
            }
            at = (at + 1) & mask;
        }
    }

    fn clear(&mut self) {
        self.buckets.fill(Bucket([EMPTY; 2]));
        self.used = 0;
    }
}

/// The ids of a piece that are not in a slot.
#[derive(Clone, Copy)]
struct Entry {
    start: u32,
    length: u32,
    dropped: u32,
}

/// A word cache and the buffers of the merging.
pub struct Cache {
    short: Table,
    long: FxHashMap<Box<[u8]>, Entry>,
    ids: Vec<u32>,
    scratch: Scratch,
    batch: Batch,
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            short: Table::new(FIRST_SLOTS),
            long: FxHashMap::default(),
            ids: Vec::new(),
            scratch: Scratch::default(),
            batch: Batch::default(),
        }
    }
}

/// Pieces whose ids are wanted, in order.
struct Batch {
    keys: [Key; BATCH],
    hashes: [usize; BATCH],
    /// Of the pieces without a key, where they start and end in their text.
    long: Vec<(usize, usize)>,
    length: usize,
    found: [u32; BATCH * INLINE + 1],
}

impl Default for Batch {
    fn default() -> Self {
        Self {
            keys: [Key::NONE; BATCH],
            hashes: [0; BATCH],
            long: Vec::new(),
            length: 0,
            found: [0; BATCH * INLINE + 1],
        }
    }
}

impl Cache {
    /// Want the ids of a piece. Returns whether the pieces wanted are to be answered before the next.
    #[inline(always)]
    pub(crate) fn want(&mut self, start: usize, end: usize, key: Key) -> bool {
        let batch = &mut self.batch;
        let at = batch.length % BATCH;
        batch.length += 1;
        batch.keys[at] = key;
        if key == Key::NONE {
            batch.hashes[at] = 0;
            batch.long.push((start, end));
        } else {
            let hash = key.hash();
            batch.hashes[at] = hash;
            prefetch(self.short.home(hash));
        }
        batch.length == BATCH
    }

    /// Want nothing.
    pub(crate) fn forget_wanted(&mut self) {
        self.batch.length = 0;
        self.batch.long.clear();
    }

    /// Append the ids of the pieces wanted to `ids` and forget the pieces. `text` is what they are of, `merges` give the
    /// ids of those not seen before.
    ///
    /// Returns how many bytes have no symbol.
    #[inline(always)]
    pub(crate) fn answer(&mut self, text: &[u8], merges: &Merges, ids: &mut Vec<u32>) -> u64 {
        let mut dropped = 0;
        let mut written = 0;
        let mut long = 0;
        for at in 0..self.batch.length.min(BATCH) {
            let key = self.batch.keys[at];
            let slot = self.short.find(self.batch.hashes[at], key);
            if slot.count <= INLINE as u32 {
                // One store of all three, of which the next ones overwrite what is too many.
                if let Some(free) = self.batch.found[written..].first_chunk_mut() {
                    *free = slot.ids;
                }
                written += slot.count as usize;
                continue;
            }
            ids.extend_from_slice(&self.batch.found[..written]);
            written = 0;
            let bytes;
            let (piece, kept) = if key == Key::NONE {
                let (start, end) = self.batch.long[long];
                long += 1;
                (&text[start..end], self.long.get(&text[start..end]).copied())
            } else {
                bytes = key.bytes();
                let [start, length, dropped] = slot.ids;
                (&bytes.0[..bytes.1], (slot.count == ELSEWHERE).then_some(Entry { start, length, dropped }))
            };
            if let Some(Entry { start, length, dropped: without }) = kept {
                ids.extend_from_slice(&self.ids[start as usize..(start + length) as usize]);
                dropped += u64::from(without);
                continue;
            }
            let before = ids.len();
            let without = merges.encode(piece, ids, &mut self.scratch);
            dropped += without;
            if key != Key::NONE {
                self.store_short(key, &ids[before..], without as u32);
            } else if piece.len() <= LONGEST {
                let entry = self.keep(&ids[before..], without as u32);
                self.long.insert(piece.into(), entry);
            }
        }
        ids.extend_from_slice(&self.batch.found[..written]);
        self.forget_wanted();
        dropped
    }

    fn store_short(&mut self, key: Key, ids: &[u32], dropped: u32) {
        let mut slot = Slot { key, ids: [0; INLINE], count: ids.len() as u32 };
        if ids.len() <= INLINE && dropped == 0 {
            slot.ids[..ids.len()].copy_from_slice(ids);
            self.forget_if_full(0);
        } else {
            let Entry { start, length, dropped } = self.keep(ids, dropped);
            slot.ids = [start, length, dropped];
            slot.count = ELSEWHERE;
        }
        self.short.put(slot);
    }

    fn keep(&mut self, ids: &[u32], dropped: u32) -> Entry {
        self.forget_if_full(ids.len());
        let start = self.ids.len() as u32;
        self.ids.extend_from_slice(ids);
        Entry { start, length: ids.len() as u32, dropped }
    }

    fn forget_if_full(&mut self, more_ids: usize) {
        if self.short.used >= MOST_SLOTS / 2 || self.long.len() >= MOST_LONG || self.ids.len() + more_ids > MOST_IDS {
            self.short.clear();
            self.long.clear();
            self.ids.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpe::key::SHORT;
    use crate::bpe::merges::NONE;

    /// Ask for each of the pieces, one batch at a time. Each byte but "?" is a token, there are no merges.
    fn ask(cache: &mut Cache, pieces: &[String]) -> (Vec<u32>, u64) {
        let symbols = std::array::from_fn(|byte| if byte == usize::from(b'?') { NONE } else { byte as u32 });
        let merges = Merges::new(symbols, &[]);
        let (mut ids, mut dropped) = (Vec::new(), 0);
        for piece in pieces {
            let text = piece.as_bytes();
            let key = if text.len() > SHORT { Key::NONE } else { Key::of(text) };
            cache.want(0, text.len(), key);
            dropped += cache.answer(text, &merges, &mut ids);
        }
        (ids, dropped)
    }

    fn expected(pieces: &[String]) -> (Vec<u32>, u64) {
        let bytes = pieces.iter().flat_map(|piece| piece.bytes());
        let ids = bytes.clone().filter(|&byte| byte != b'?').map(u32::from).collect();
        (ids, bytes.filter(|&byte| byte == b'?').count() as u64)
    }

    #[test]
    fn what_was_encoded_once_is_found() {
        let pieces =
            ["a", "ab", "abc", "abcd", "?", "a?", "abcdefghijklmno", "abcdefghijklmnop", "a longer? piece of it"]
                .map(String::from);
        let long = ["x".repeat(LONGEST), "x".repeat(LONGEST + 1)];
        let mut cache = Cache::default();
        let all = [pieces.as_slice(), &long].concat();
        let (ids, dropped) = expected(&all);
        assert_eq!(ask(&mut cache, &all), (ids.clone(), dropped));
        let kept = (cache.short.used, cache.long.len());
        // All but the longest.
        assert_eq!(kept, (7, 3));
        assert_eq!(ask(&mut cache, &all), (ids, dropped));
        assert_eq!((cache.short.used, cache.long.len()), kept);
    }

    #[test]
    fn past_the_cap_all_is_forgotten_and_nothing_wrong() {
        let mut cache = Cache::default();
        let mut forgotten = 0;
        let pieces: Vec<String> = (0..MOST_SLOTS as u32 * 2 / 3)
            .map(|number| if number % 8 == 0 { format!("a longer piece {number}") } else { number.to_string() })
            .collect();
        // Those that are there each time, in a slot, in the list of ids, and among the long: none may outlive the ids.
        let again = ["ab", "abcd", "a?", "a longer piece, the same each time?"].map(String::from);
        for pieces in pieces.chunks(1000) {
            let before = cache.short.used;
            let pieces = [pieces, &again].concat();
            let (ids, dropped) = expected(&pieces);
            assert_eq!(ask(&mut cache, &pieces), (ids, dropped));
            forgotten += usize::from(cache.short.used < before);
        }
        assert!(forgotten > 0, "the cap was never reached");
        assert!(cache.short.slots() <= MOST_SLOTS);
    }
}
