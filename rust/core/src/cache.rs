//! The ids of pieces seen before. One cache belongs to one thread; it changes speed only, never an id.

use rustc_hash::FxHashMap;

use crate::bpe::Scratch;

/// Pieces up to this length live in the open table, the key holding all their bytes.
const SHORT: usize = 15;
/// Longer pieces than this are nearly always unique, and would fill the memory for nothing.
const LONGEST: usize = 256;
/// Bounds of the memory: 32 MB of table, 16 MB of ids, and about as much of long pieces. Past one of them all is
/// forgotten.
const MOST_SLOTS: usize = 1 << 20;
const MOST_IDS: usize = 1 << 22;
const MOST_LONG: usize = 1 << 17;
const FIRST_SLOTS: usize = 1 << 12;

/// Where the ids of a piece lie, and how many of its bytes have no symbol.
#[derive(Clone, Copy, Default)]
struct Entry {
    start: u32,
    length: u16,
    dropped: u16,
}

/// The bytes of a short piece and, in the last byte, its length; 0 is no key, as no piece is empty.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key(u128);

#[derive(Clone, Copy)]
struct Slot {
    key: Key,
    entry: Entry,
}

const EMPTY: Slot = Slot { key: Key(0), entry: Entry { start: 0, length: 0, dropped: 0 } };

/// A word cache and the buffers of the merging.
pub struct Cache {
    slots: Vec<Slot>,
    used: usize,
    long: FxHashMap<Box<[u8]>, Entry>,
    ids: Vec<u32>,
    pub(crate) scratch: Scratch,
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            slots: vec![EMPTY; FIRST_SLOTS],
            used: 0,
            long: FxHashMap::default(),
            ids: Vec::new(),
            scratch: Scratch::default(),
        }
    }
}

/// What [`Cache::find`] met.
pub(crate) enum Found {
    /// The ids were appended; so many bytes have no symbol.
    Hit(u64),
    /// Not known; to be encoded and handed to [`Cache::store`].
    Miss(Place),
    /// Too long to be kept.
    Never,
}

/// Where a missed piece will be stored.
pub(crate) struct Place(Option<Key>);

impl Key {
    /// `padded` is the 16 bytes of the text from the start of the piece on, where it has as many.
    #[inline]
    fn of(piece: &[u8], padded: Option<&[u8; 16]>) -> Self {
        let length = piece.len();
        let bytes = match padded {
            Some(bytes) => u128::from_le_bytes(*bytes) & ((1 << (8 * length)) - 1),
            None => {
                let mut bytes = [0; 16];
                bytes[..length].copy_from_slice(piece);
                u128::from_le_bytes(bytes)
            }
        };
        Self(bytes | (length as u128) << 120)
    }

    #[inline]
    fn hash(self) -> usize {
        let low = self.0 as u64 ^ 0x9E37_79B9_7F4A_7C15;
        let high = (self.0 >> 64) as u64 ^ 0xD6E8_FEB8_6659_FD93;
        let product = u128::from(low) * u128::from(high);
        (product as u64 ^ (product >> 64) as u64) as usize
    }
}

impl Cache {
    #[inline]
    pub(crate) fn find(&self, piece: &[u8], padded: Option<&[u8; 16]>, ids: &mut Vec<u32>) -> Found {
        let (entry, place) = if piece.len() <= SHORT {
            let key = Key::of(piece, padded);
            (self.slot(key), Place(Some(key)))
        } else if piece.len() <= LONGEST {
            (self.long.get(piece).copied(), Place(None))
        } else {
            return Found::Never;
        };
        let Some(entry) = entry else { return Found::Miss(place) };
        let start = entry.start as usize;
        ids.extend_from_slice(&self.ids[start..start + usize::from(entry.length)]);
        Found::Hit(u64::from(entry.dropped))
    }

    #[inline]
    fn slot(&self, key: Key) -> Option<Entry> {
        let mask = self.slots.len() - 1;
        let mut at = key.hash() & mask;
        loop {
            let slot = &self.slots[at];
            if slot.key == key {
                return Some(slot.entry);
            }
            if slot.key == EMPTY.key {
                return None;
            }
            at = (at + 1) & mask;
        }
    }

    /// Keep the ids of a missed piece, of at most `LONGEST` bytes.
    pub(crate) fn store(&mut self, place: Place, piece: &[u8], ids: &[u32], dropped: u64) {
        if self.used >= MOST_SLOTS / 2 || self.long.len() >= MOST_LONG || self.ids.len() + ids.len() > MOST_IDS {
            *self = Self { scratch: std::mem::take(&mut self.scratch), ..Self::default() };
        }
        let entry = Entry { start: self.ids.len() as u32, length: ids.len() as u16, dropped: dropped as u16 };
        self.ids.extend_from_slice(ids);
        match place.0 {
            Some(key) => {
                if self.used >= self.slots.len() / 2 {
                    let doubled = vec![EMPTY; self.slots.len() * 2];
                    for slot in std::mem::replace(&mut self.slots, doubled) {
                        if slot.key != EMPTY.key {
                            self.put(slot);
                        }
                    }
                }
                self.put(Slot { key, entry });
                self.used += 1;
            }
            None => {
                self.long.insert(piece.into(), entry);
            }
        }
    }

    fn put(&mut self, slot: Slot) {
        let mask = self.slots.len() - 1;
        let mut at = slot.key.hash() & mask;
        while self.slots[at].key != EMPTY.key {
            at = (at + 1) & mask;
        }
        self.slots[at] = slot;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_the_same_at_the_end_of_a_text_and_within() {
        let text = b"abcdefghijklmnopqrstuvwxyz";
        for length in 1..=SHORT {
            let piece = &text[..length];
            assert!(Key::of(piece, text.first_chunk()) == Key::of(piece, None));
        }
        assert!(Key::of(b"\0", None) != Key::of(b"\0\0", None));
    }

    #[test]
    fn what_is_stored_is_found_until_the_cap() {
        let mut cache = Cache::default();
        let mut ids = Vec::new();
        let mut forgotten = 0;
        for number in 0..(MOST_SLOTS as u32) {
            let piece = if number % 8 == 0 { format!("a longer piece {number}") } else { number.to_string() };
            let Found::Miss(place) = cache.find(piece.as_bytes(), None, &mut ids) else { panic!("{piece} is known") };
            let before = cache.used;
            cache.store(place, piece.as_bytes(), &[number, 1], 3);
            forgotten += usize::from(cache.used < before);
            assert!(matches!(cache.find(piece.as_bytes(), None, &mut ids), Found::Hit(3)));
            assert_eq!(ids, [number, 1]);
            ids.clear();
        }
        assert!(forgotten > 0, "the cap was never reached");
        assert!(cache.slots.len() <= MOST_SLOTS);
        assert!(matches!(cache.find(&[b'x'; LONGEST + 1], None, &mut ids), Found::Never));
    }
}
