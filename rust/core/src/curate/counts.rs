//! Sets and counts of 64-bit hashes in tables that are used again for every text.

const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;
const SMALLEST: usize = 16;

/// A hash that is mixed enough to be added to others.
#[inline]
pub(crate) fn mixed(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

/// Places of hashes: linear probing, at most three quarters full. 0 marks an empty place, so the hash 0 counts as 1.
#[derive(Default)]
struct Places {
    keys: Vec<u64>,
    slots: usize,
    shift: u32,
}

impl Places {
    /// Make it empty, with room for `hashes` hashes.
    fn clear(&mut self, hashes: usize) {
        self.slots = (hashes + hashes / 3 + 1).next_power_of_two().max(SMALLEST);
        self.shift = 64 - self.slots.trailing_zeros();
        if self.keys.len() < self.slots {
            self.keys = vec![0; self.slots];
        } else {
            self.keys[..self.slots].fill(0);
        }
    }

    /// The place of a hash, and whether it is new.
    #[inline]
    fn place(&mut self, hash: u64) -> (usize, bool) {
        let hash = hash.max(1);
        let keys = &mut self.keys[..self.slots];
        let mut place = (hash.wrapping_mul(MULTIPLIER) >> self.shift) as usize;
        loop {
            let key = &mut keys[place];
            if *key == hash {
                return (place, false);
            }
            if *key == 0 {
                *key = hash;
                return (place, true);
            }
            place = (place + 1) & (keys.len() - 1);
        }
    }

    fn has(&self, hash: u64) -> bool {
        let hash = hash.max(1);
        let keys = &self.keys[..self.slots];
        let mut place = (hash.wrapping_mul(MULTIPLIER) >> self.shift) as usize;
        while keys[place] != 0 {
            if keys[place] == hash {
                return true;
            }
            place = (place + 1) & (keys.len() - 1);
        }
        false
    }

    fn shrink(&mut self, limit: usize) {
        if self.keys.len() > limit {
            *self = Self::default();
        }
    }
}

/// Which hashes of a list may occur more than once: two bits for each of many places, without a branch a hash.
///
/// Most grams of a text occur once. A table of all of them takes three times as long, for the branches are mispredicted.
#[derive(Default)]
pub(crate) struct Filter {
    /// By 64 places: those that one hash took, and those that two or more took.
    taken: Vec<[u64; 2]>,
    shift: u32,
}

impl Filter {
    /// Read the whole list.
    pub(crate) fn read(&mut self, hashes: &[u64]) {
        self.clear(hashes.len());
        for &hash in hashes {
            self.add(hash);
        }
    }

    /// Begin a list of so many hashes.
    pub(crate) fn clear(&mut self, hashes: usize) {
        let words = (hashes / 5 + 1).next_power_of_two().max(2);
        self.taken.clear();
        self.taken.resize(words, [0; 2]);
        self.shift = 64 - words.trailing_zeros();
    }

    /// Read the next hash.
    #[inline(always)]
    pub(crate) fn add(&mut self, hash: u64) {
        // Grown to a power of two, so the mask of `place` changes nothing but saves the check of bounds.
        let (word, bit) = self.place(hash);
        let [once, twice] = &mut self.taken[word];
        *twice |= *once & bit;
        *once |= bit;
    }

    #[inline(always)]
    fn place(&self, hash: u64) -> (usize, u64) {
        let hash = hash.wrapping_mul(MULTIPLIER);
        ((hash >> self.shift) as usize & (self.taken.len() - 1), 1 << (hash >> 8 & 63))
    }

    /// Whether another of the hashes that were read may be equal; false is certain.
    #[inline]
    pub(crate) fn has_twice(&self, hash: u64) -> bool {
        let (word, bit) = self.place(hash);
        self.taken[word][1] & bit != 0
    }

    /// Move the hashes that `has_twice` to the front. Returns how many they are.
    pub(crate) fn keep(&self, hashes: &mut [u64]) -> usize {
        let mut kept = 0;
        for at in 0..hashes.len() {
            let hash = hashes[at];
            hashes[kept] = hash;
            kept += usize::from(self.has_twice(hash));
        }
        kept
    }

    pub(crate) fn shrink(&mut self, limit: usize) {
        self.taken.clear();
        self.taken.shrink_to(limit);
    }
}

/// A set of hashes that grows.
#[derive(Default)]
pub(crate) struct Set {
    places: Places,
    len: usize,
}

impl Set {
    /// Make it empty, with room for `hashes` hashes.
    pub(crate) fn clear(&mut self, hashes: usize) {
        self.places.clear(hashes);
        self.len = 0;
    }

    /// Add a hash. Returns false if it was there.
    #[inline]
    pub(crate) fn insert(&mut self, hash: u64) -> bool {
        if (self.len + 1) * 4 > self.places.slots * 3 {
            self.grow();
        }
        let (_, new) = self.places.place(hash);
        self.len += usize::from(new);
        new
    }

    /// Whether it has a hash.
    #[inline]
    pub(crate) fn has(&self, hash: u64) -> bool {
        self.places.has(hash)
    }

    fn grow(&mut self) {
        let mut larger = Places::default();
        larger.clear(self.places.slots);
        for &key in self.places.keys[..self.places.slots].iter().filter(|&&key| key != 0) {
            larger.place(key);
        }
        self.places = larger;
    }

    pub(crate) fn shrink(&mut self, limit: usize) {
        self.places.shrink(limit);
    }
}

/// How often each hash occurs, and where first. It grows too.
#[derive(Default)]
pub(crate) struct Counts {
    places: Places,
    /// By place: the number of the hash among those that occur more than once, from 1, or 0.
    numbers: Vec<u32>,
    /// By place.
    first: Vec<u32>,
    repeated: Vec<u32>,
    distinct: usize,
}

impl Counts {
    /// Make it empty, with room for `hashes` hashes.
    pub(crate) fn clear(&mut self, hashes: usize) {
        self.places.clear(hashes);
        let slots = self.places.slots;
        if self.numbers.len() < slots {
            self.numbers = vec![0; slots];
            self.first = vec![0; slots];
        } else {
            self.numbers[..slots].fill(0);
        }
        self.repeated.clear();
        self.distinct = 0;
    }

    /// Count a hash at the position `at`. Returns how often it has occurred, and the position of its first occurrence.
    #[inline]
    pub(crate) fn add(&mut self, hash: u64, at: u32) -> (u32, u32) {
        let (place, new) = self.places.place(hash);
        if new {
            self.first[place] = at;
            self.distinct += 1;
            if self.distinct * 4 > self.places.slots * 3 {
                self.grow();
            }
            return (1, at);
        }
        let number = &mut self.numbers[place];
        if *number == 0 {
            self.repeated.push(1);
            *number = self.repeated.len() as u32;
        }
        let count = &mut self.repeated[*number as usize - 1];
        *count += 1;
        (*count, self.first[place])
    }

    /// Whether a hash is new, and there are so many already.
    #[inline]
    pub(crate) fn lacks(&self, hash: u64, most: usize) -> bool {
        self.distinct >= most && !self.places.has(hash)
    }

    /// The position at which a hash was first given; now, if it is new.
    #[inline]
    pub(crate) fn first_of(&mut self, hash: u64, at: u32) -> u32 {
        let (place, new) = self.places.place(hash);
        if !new {
            return self.first[place];
        }
        self.first[place] = at;
        self.distinct += 1;
        if self.distinct * 4 > self.places.slots * 3 {
            self.grow();
        }
        at
    }

    fn grow(&mut self) {
        let mut larger = Self::default();
        larger.clear(self.places.slots);
        for (at, &key) in self.places.keys[..self.places.slots].iter().enumerate().filter(|(_, key)| **key != 0) {
            let (place, _) = larger.places.place(key);
            larger.numbers[place] = self.numbers[at];
            larger.first[place] = self.first[at];
        }
        (self.places, self.numbers, self.first) = (larger.places, larger.numbers, larger.first);
    }

    /// How many hashes there are.
    pub(crate) fn distinct(&self) -> usize {
        self.distinct
    }

    /// The counts of the hashes that occur more than once.
    pub(crate) fn repeated(&self) -> &[u32] {
        &self.repeated
    }

    pub(crate) fn shrink(&mut self, limit: usize) {
        self.places.shrink(limit);
        if self.numbers.len() > limit {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_grows_and_forgets() {
        let mut set = Set::default();
        for _ in 0..2 {
            set.clear(0);
            assert!((0..1000).map(mixed).all(|hash| set.insert(hash)));
            assert!((0..1000).map(mixed).all(|hash| !set.insert(hash)));
        }
    }

    #[test]
    fn a_filter_keeps_all_that_is_repeated() {
        let mut filter = Filter::default();
        for number in [0, 1, 10, 5000] {
            let once: Vec<_> = (0..number).map(mixed).collect();
            let repeated: Vec<_> = (number..number + number / 10).map(mixed).collect();
            filter.read(&[&once[..], &repeated, &repeated].concat());
            assert!(repeated.iter().all(|&hash| filter.has_twice(hash)));
            let kept = once.iter().filter(|&&hash| filter.has_twice(hash)).count();
            assert!(kept <= once.len() / 4, "{kept} of {number}");
        }
    }

    #[test]
    fn counts_know_their_first_place() {
        let mut counts = Counts::default();
        for room in [6, 0] {
            counts.clear(room);
            let seen: Vec<_> = [5, 0, 5, 7, 0, 5].into_iter().zip(0..).map(|(hash, at)| counts.add(hash, at)).collect();
            assert_eq!(seen, [(1, 0), (1, 1), (2, 0), (1, 3), (2, 1), (3, 0)]);
            assert_eq!((counts.distinct(), counts.repeated()), (3, &[3, 2][..]));
        }
    }

    #[test]
    fn counts_grow() {
        let mut counts = Counts::default();
        counts.clear(0);
        for round in 1..=3 {
            for at in 0..1000 {
                assert_eq!(counts.add(mixed(u64::from(at)), at + 5000 * (round - 1)), (round, at));
            }
        }
        assert_eq!((counts.distinct(), counts.repeated()), (1000, &[3; 1000][..]));
    }
}
