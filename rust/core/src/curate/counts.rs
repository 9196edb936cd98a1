//! Sets and counts of 64-bit hashes, all of whose bits are mixed, in tables that are used again for every text.

const SMALLEST: usize = 16;
/// Places in a table of twins for each hash, or up to twice as many.
const TWIN_SLOTS: usize = 8;

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
        let mut place = (hash >> self.shift) as usize;
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
        let mut place = (hash >> self.shift) as usize;
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
        let mut add = self.adding();
        hashes.iter().for_each(|&hash| add(hash));
    }

    /// Begin a list of so many hashes.
    pub(crate) fn clear(&mut self, hashes: usize) {
        let words = (hashes / 5 + 1).next_power_of_two().max(2);
        self.taken.clear();
        self.taken.resize(words, [0; 2]);
        self.shift = 64 - words.trailing_zeros();
    }

    /// What reads the next hash.
    #[inline(always)]
    pub(crate) fn adding(&mut self) -> impl FnMut(u64) {
        let Self { taken, shift } = self;
        let (taken, shift) = (taken.as_mut_slice(), *shift);
        move |hash| {
            // There is a power of two of words, so the mask changes nothing but saves the check of bounds.
            let word = (hash >> shift) as usize & (taken.len() - 1);
            let bit = 1 << (hash >> 8 & 63);
            let [once, twice] = &mut taken[word];
            *twice |= *once & bit;
            *once |= bit;
        }
    }

    /// Read the next hash.
    #[inline(always)]
    pub(crate) fn add(&mut self, hash: u64) {
        self.adding()(hash);
    }

    #[inline(always)]
    fn place(&self, hash: u64) -> (usize, u64) {
        ((hash >> self.shift) as usize & (self.taken.len() - 1), 1 << (hash >> 8 & 63))
    }

    /// Whether another of the hashes that were read may be equal; false is certain.
    #[inline]
    pub(crate) fn has_twice(&self, hash: u64) -> bool {
        let (word, bit) = self.place(hash);
        self.taken[word][1] & bit != 0
    }

    pub(crate) fn shrink(&mut self, limit: usize) {
        self.taken.clear();
        self.taken.shrink_to(limit);
    }
}

/// A bit for each of many numbers.
#[derive(Default)]
pub(crate) struct Marks(Vec<u64>);

impl Marks {
    /// Make it empty, with room for numbers below `numbers`.
    pub(crate) fn clear(&mut self, numbers: usize) {
        self.0.clear();
        self.0.resize(numbers / 64 + 1, 0);
    }

    #[inline]
    pub(crate) fn has(&self, number: u32) -> bool {
        self.0[number as usize / 64] >> (number % 64) & 1 == 1
    }

    /// Set a bit. Returns false if it was set.
    #[inline]
    pub(crate) fn set(&mut self, number: u32) -> bool {
        let (word, bit) = (&mut self.0[number as usize / 64], 1 << (number % 64));
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    /// The numbers that are set, ascending.
    #[inline(always)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().zip(0..).flat_map(|(&word, place)| {
            let bits = std::iter::successors(Some(word), |word| Some(word & word.wrapping_sub(1)));
            bits.take_while(|&word| word != 0).map(move |word| 64 * place + word.trailing_zeros())
        })
    }
}

/// Which hashes of a list occur more than once.
///
/// Most occur once, so one pass without a branch finds those that share their last bits with an earlier one. Its table is
/// used again as it is: places of a list before are below all of this one.
#[derive(Default)]
pub(crate) struct Twins {
    last: Vec<u32>,
    /// The place of the first hash of the list.
    base: u32,
    /// By place: the place before that has the same last bits.
    before: Vec<u32>,
    /// Places that have such a place.
    later: Vec<u32>,
    /// By place of a hash that is marked: which time it occurs there, and where it occurs first.
    times: Vec<(u32, u32)>,
    pub(crate) marks: Marks,
}

impl Twins {
    /// Read a list of `count` hashes, or of numbers that follow from them, and mark those that occur more than once. Hand
    /// on each that has occurred before: how often by now, and where first.
    #[inline(always)]
    pub(crate) fn read(
        &mut self,
        count: usize,
        hashes: impl Iterator<Item = u64>,
        hash_at: impl Fn(usize) -> u64,
        mut each: impl FnMut((u32, u32)),
    ) {
        let slots = (TWIN_SLOTS * count).next_power_of_two().clamp(SMALLEST, 1 << 22);
        if self.last.len() < slots || self.base as usize + count > u32::MAX as usize {
            (self.last, self.base) = (vec![0; slots.max(self.last.len())], 1);
        }
        if self.before.len() < count {
            self.before.resize(count, 0);
            self.later.resize(count, 0);
            self.times.resize(count, (0, 0));
        }
        let Self { last, base, before, later, times, marks } = self;
        // Slices: of a vector, its place and length would be read again at each step.
        let (last, before, later, first) = (&mut last[..slots], &mut before[..count], &mut later[..count], *base);
        let mut found = 0;
        for ((hash, at), before) in hashes.zip(0..).zip(before.iter_mut()) {
            let place = hash as usize & (last.len() - 1);
            *before = std::mem::replace(&mut last[place], first + at);
            later[found] = at;
            found += usize::from(*before >= first);
        }
        *base += count as u32;
        marks.clear(count);
        for &at in &later[..found] {
            let hash = hash_at(at as usize);
            let mut twin = before[at as usize];
            while twin >= first && hash_at((twin - first) as usize) != hash {
                twin = before[(twin - first) as usize];
            }
            if twin >= first {
                twin -= first;
                let known = if marks.set(twin) { (1, twin) } else { times[twin as usize] };
                marks.set(at);
                times[at as usize] = (known.0 + 1, known.1);
                each(times[at as usize]);
            }
        }
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

/// A hash, or 0 where none is; how often it occurs, and where first.
#[derive(Clone, Copy, Default)]
struct Counted {
    hash: u64,
    count: u32,
    first: u32,
}

/// How often each hash occurs, and where first. It grows too.
#[derive(Default)]
pub(crate) struct Counts {
    /// As in `Places`.
    counted: Vec<Counted>,
    slots: usize,
    shift: u32,
    distinct: usize,
    /// Places of those that occur more than once.
    repeated: Vec<u32>,
}

impl Counts {
    /// Make it empty, with room for `hashes` hashes.
    pub(crate) fn clear(&mut self, hashes: usize) {
        self.slots = (hashes + hashes / 3 + 1).next_power_of_two().max(SMALLEST);
        self.shift = 64 - self.slots.trailing_zeros();
        self.counted.clear();
        self.counted.resize(self.slots, Counted::default());
        self.distinct = 0;
        self.repeated.clear();
    }

    /// The place of a hash, or where it would be.
    #[inline(always)]
    fn place(&self, hash: u64) -> usize {
        let mut place = (hash >> self.shift) as usize;
        while self.counted[place].hash != hash && self.counted[place].hash != 0 {
            place = (place + 1) & (self.counted.len() - 1);
        }
        place
    }

    /// Count a hash at the position `at`. Returns how often it has occurred, and the position of its first occurrence.
    #[inline]
    pub(crate) fn add(&mut self, hash: u64, at: u32) -> (u32, u32) {
        let place = self.place(hash.max(1));
        let counted = &mut self.counted[place];
        if counted.hash != 0 {
            counted.count += 1;
            if counted.count == 2 {
                self.repeated.push(place as u32);
            }
            return (counted.count, counted.first);
        }
        *counted = Counted { hash: hash.max(1), count: 1, first: at };
        self.distinct += 1;
        if self.distinct * 4 > self.slots * 3 {
            self.grow();
        }
        (1, at)
    }

    /// Whether a hash is new, and there are so many already.
    #[inline]
    pub(crate) fn lacks(&self, hash: u64, most: usize) -> bool {
        self.distinct >= most && self.counted[self.place(hash.max(1))].hash == 0
    }

    #[cold]
    fn grow(&mut self) {
        let mut larger = Self::default();
        larger.clear(self.slots);
        for &counted in self.counted.iter().filter(|counted| counted.hash != 0) {
            let place = larger.place(counted.hash);
            larger.counted[place] = counted;
            if counted.count > 1 {
                larger.repeated.push(place as u32);
            }
        }
        *self = Self { distinct: self.distinct, ..larger };
    }

    /// How many hashes there are.
    pub(crate) fn distinct(&self) -> usize {
        self.distinct
    }

    /// The counts of the hashes that occur more than once, in no order.
    pub(crate) fn repeated(&self) -> impl Iterator<Item = usize> {
        self.repeated.iter().map(|&place| self.counted[place as usize].count as usize)
    }

    pub(crate) fn shrink(&mut self, limit: usize) {
        if self.counted.capacity() > limit {
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
    fn twins_are_found_among_hashes_that_share_their_last_bits() {
        let mut twins = Twins { base: u32::MAX - 40, ..Twins::default() };
        for (hashes, last_bits) in [(12, 0), (12, 1), (0, 8), (30, 8), (5000, 3)] {
            // Of few different hashes, so that they repeat; all of some have the same last bits.
            let list: Vec<_> = (0..hashes).map(|at| mixed(mixed(at) % 9) << 8 | at & last_bits).collect();
            let expected: Vec<_> = (0..list.len())
                .map(|at| {
                    let times = list[..=at].iter().filter(|&&hash| hash == list[at]).count() as u32;
                    (times, list.iter().position(|&hash| hash == list[at]).unwrap_or(0) as u32)
                })
                .collect();
            let mut seen = vec![];
            twins.read(list.len(), list.iter().copied(), |at| list[at], |twin| seen.push(twin));
            assert!(expected.iter().filter(|twin| twin.0 > 1).eq(&seen));
            let twice = |at: &u32| list.iter().filter(|&&hash| hash == list[*at as usize]).count() > 1;
            assert!(twins.marks.iter().eq((0..list.len() as u32).filter(twice)));
        }
    }

    #[test]
    fn counts_know_their_first_place() {
        let mut counts = Counts::default();
        for room in [6, 0] {
            counts.clear(room);
            let seen: Vec<_> = [5, 0, 5, 7, 0, 5].into_iter().zip(0..).map(|(hash, at)| counts.add(hash, at)).collect();
            assert_eq!(seen, [(1, 0), (1, 1), (2, 0), (1, 3), (2, 1), (3, 0)]);
            assert_eq!((counts.distinct(), counts.repeated().sum()), (3, 5));
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
        assert!(counts.distinct() == 1000 && counts.repeated().eq([3; 1000]));
    }
}
