//! Repetition in texts: n-grams of words and of characters that occur more than once.
//!
//! Of a long text, what is needed of each word is made again for each question, and grams are counted in several passes:
//! as many as a table may have in the first, then those of a range of hashes in each. So a text of 64 MiB of words of one
//! letter takes 0.7 GB and not 2.7.

use xxhash_rust::xxh3::xxh3_64;

use super::classes::{Classes, UPPER};
use super::counts::{Counts, Filter, Marks, Set, Twins, mixed};

/// Words or characters in a gram of `repeated_lower` and `repeated_characters`.
pub(super) const GRAM: usize = 10;
/// First bytes of n-grams that are compared before the grams are.
const BEGINNING: usize = 16;
/// Bytes of a long text.
const LONG: usize = 1 << 22;
/// Grams of a long text that are counted in one pass.
const AT_ONCE: usize = 1 << 22;
/// What buffers keep for the next text.
pub(super) const KEPT: usize = 1 << 20;

const FACTOR: u64 = 0xD134_2543_DE82_EF95;
/// The factor of the oldest of ten words.
const LEAVING: u64 = FACTOR.wrapping_pow(GRAM as u32 - 1);

/// Which questions will be asked of the words of texts.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub(super) tops: bool,
    pub(super) repeats: bool,
    pub(super) lower: bool,
}

/// The words of a text, and buffers to count their grams.
pub(super) struct Repetition {
    asked: Asked,
    words: Words,
    /// Of the text that is read: whether it is long, and whether it is ASCII.
    long: bool,
    ascii: bool,
    from: usize,
    at_once: usize,
    counts: Counts,
    filter: Filter,
    twins: Twins,
    seen: Set,
    grams: Vec<u64>,
    positions: Vec<u32>,
    /// How many grams occur so often.
    by_count: Vec<u32>,
    /// Grams of a long text that occur once, and those that were counted.
    once: Marks,
    done: Marks,
}

struct Words {
    /// A hash of each word; of a long text not before it is asked for.
    hashes: Vec<u64>,
    /// A hash of each word in lower case; of a long text they take the place of the hashes.
    lower: Vec<u64>,
    /// The words without anything between them, and room behind them.
    joined: Vec<u8>,
    /// Bytes of all words before each word; one more at the end.
    starts: Vec<u32>,
    classes: &'static Classes,
    lowered: String,
}

impl Repetition {
    pub(super) fn new(asked: Asked) -> Self {
        let words = Words {
            hashes: Vec::new(),
            lower: Vec::new(),
            joined: Vec::new(),
            starts: Vec::new(),
            classes: Classes::get(),
            lowered: String::new(),
        };
        Self {
            asked,
            words,
            long: false,
            ascii: false,
            from: LONG,
            at_once: AT_ONCE,
            counts: Counts::default(),
            filter: Filter::default(),
            twins: Twins::default(),
            seen: Set::default(),
            grams: Vec::new(),
            positions: Vec::new(),
            by_count: Vec::new(),
            once: Marks::default(),
            done: Marks::default(),
        }
    }

    /// Forget the text before.
    pub(super) fn begin(&mut self, text: &str, ascii: bool) {
        let words = &mut self.words;
        words.hashes.clear();
        words.lower.clear();
        words.joined.clear();
        words.starts.clear();
        words.starts.push(0);
        if self.asked.tops || self.asked.repeats || text.len() >= self.from {
            words.joined.resize(text.len() + BEGINNING, 0);
        }
        (self.long, self.ascii) = (text.len() >= self.from, ascii);
    }

    /// Take the next words, which begin and end there; `may_change` tells whether lower case may be something else.
    #[inline(always)]
    pub(super) fn push(&mut self, text: &[u8], words: &[[u32; 2]], may_change: impl Fn(usize, usize) -> bool) {
        let Self { asked, long, words: Words { hashes, lower, joined, starts, classes, lowered }, .. } = self;
        let word_at = |&[start, end]: &[u32; 2]| Word::new(text, start as usize, end as usize);
        if asked.tops || asked.repeats || *long {
            let mut at = starts.last().map_or(0, |&start| start as usize);
            starts.extend(words.iter().map(word_at).map(|word| {
                word.copy(&mut joined[at..]);
                at += word.bytes.len();
                at as u32
            }));
        }
        if *long {
            return;
        }
        if asked.tops {
            hashes.extend(words.iter().map(word_at).map(|word| word.hash()));
        }
        if asked.lower {
            lower.extend(words.iter().map(|place| {
                let word = word_at(place);
                match word.in_lower() {
                    Some(lower) => lower.hash(),
                    None if may_change(place[0] as usize, place[1] as usize) => lower_hash(classes, lowered, &word),
                    None => word.hash(),
                }
            }));
        }
    }

    /// Characters of some words, without what is between them.
    fn chars(&self, first: usize, last: usize) -> usize {
        let words = &self.words;
        let bytes = words.starts[first] as usize..words.starts[last] as usize;
        if self.ascii { bytes.len() } else { chars_of(&words.joined[bytes]) }
    }

    /// Characters that the most frequent n-gram of two, of three and of four words takes, with single blanks; the first
    /// of equally frequent ones.
    #[inline(always)]
    pub(super) fn tops(&mut self) -> [usize; 3] {
        if self.long {
            self.words.hash();
        }
        let count = self.words.hashes.len();
        self.positions.clear();
        if self.long {
            self.once.clear(count);
        } else {
            self.positions.extend(0..count as u32);
        }
        [2, 3, 4].map(|size| {
            let grams = (count + 1).saturating_sub(size);
            if grams == 0 {
                return 0;
            }
            let (times, first) = if self.long { self.top_of_long(size) } else { self.top(size, grams) };
            let first = first as usize;
            (self.chars(first, first + size) + size - 1) * times as usize
        })
    }

    /// How often the most frequent gram of `size` words occurs, and where first.
    ///
    /// A repeated n-gram begins with a repeated (n−1)-gram: `positions` are those of the size before.
    #[inline(always)]
    fn top(&mut self, size: usize, grams: usize) -> (u32, u32) {
        let mut best = (1, 0);
        while self.positions.pop_if(|&mut at| at as usize >= grams).is_some() {}
        let (hashes, positions) = (&self.words.hashes, &mut self.positions);
        let gram_at = |place: usize| gram_of(&hashes[positions[place] as usize..][..size]);
        let each = |(times, first): (u32, u32)| best = better(best, (times, positions[first as usize]));
        self.twins.read(positions.len(), (0..positions.len()).map(gram_at), gram_at, each);
        let mut kept = 0;
        self.twins.marks.iter().for_each(|place| {
            positions[kept] = positions[place as usize];
            kept += 1;
        });
        positions.truncate(kept);
        best
    }

    fn top_of_long(&mut self, size: usize) -> (u32, u32) {
        let hashes = std::mem::take(&mut self.words.hashes);
        let (best, _) = self.count_long(hashes.len(), |push| {
            for (words, at) in hashes.windows(size).zip(0..) {
                push(gram_of(words), at);
            }
        });
        self.words.hashes = hashes;
        best
    }

    /// Count the grams of a long text that `each` hands on with their numbers. Returns how often the most frequent one
    /// occurs and where first, and how many there are of all that occur more than once.
    ///
    /// What `once` has occurs once. More is added to it.
    fn count_long(&mut self, grams: usize, each: impl Fn(&mut dyn FnMut(u64, u32))) -> ((u32, u32), usize) {
        let Self { counts, filter, once, done, at_once, .. } = self;
        filter.clear(grams);
        each(&mut |gram, at| {
            if !once.has(at) {
                filter.add(gram);
            }
        });
        done.clear(grams);
        each(&mut |gram, at| {
            if !filter.has_twice(gram) {
                once.set(at);
            }
        });
        filter.shrink(0);
        let (mut best, mut occurrences, mut left) = ((1, 0), 0, 0);
        counts.clear(0);
        each(&mut |gram, at| {
            if once.has(at) {
                return;
            }
            if counts.lacks(gram, *at_once) {
                left += 1;
                return;
            }
            best = better(best, counts.add(gram, at));
            done.set(at);
        });
        occurrences += counts.repeated().sum::<usize>();
        let parts = Parts::of(left, *at_once);
        for part in (0..parts.count).filter(|_| left > 0) {
            counts.clear(0);
            each(&mut |gram, at| {
                if parts.of_gram(gram) == part && !once.has(at) && !done.has(at) {
                    best = better(best, counts.add(gram, at));
                }
            });
            occurrences += counts.repeated().sum::<usize>();
        }
        (best, occurrences)
    }

    /// Characters of repeated n-grams of 5 to 10 words, as a scan from left to right finds them.
    #[inline(always)]
    pub(super) fn repeats(&mut self) -> [usize; 6] {
        if self.long {
            self.words.hashes = Vec::new();
            self.counts.shrink(2 * KEPT);
        }
        self.find_repeats();
        if self.positions.is_empty() && !self.long {
            return [0; 6];
        }
        std::array::from_fn(|at| if self.long { self.repeated_of_long(at + 5) } else { self.repeated(at + 5) })
    }

    /// Set `positions` to the words at which a repeated n-gram of five or more words can begin; of a long text, `once` to
    /// the others.
    ///
    /// Without blanks, equal grams may be cut into words in different places. Their first bytes are equal all the same.
    #[inline(always)]
    fn find_repeats(&mut self) {
        let Words { joined, starts, .. } = &self.words;
        let fives = starts.len().saturating_sub(5);
        let beginnings = starts[..fives].iter().map(|&start| hash_of_ends::<BEGINNING>(&joined[start as usize..]));
        let short = |at: usize| ((starts[at + 5] - starts[at]) as usize) < BEGINNING;
        self.positions.clear();
        if self.long {
            self.grams.clear();
            self.grams.extend(beginnings);
            self.filter.read(&self.grams);
            self.once.clear(fives);
            for at in (0..fives).filter(|&at| !short(at) && !self.filter.has_twice(self.grams[at])) {
                self.once.set(at as u32);
            }
            self.filter.shrink(0);
        } else {
            self.grams.clear();
            self.grams.extend(beginnings);
            self.twins.read(fives, self.grams.iter().copied(), |at| self.grams[at], |_| ());
            self.positions.extend((0..fives as u32).filter(|&at| self.twins.marks.has(at) || short(at as usize)));
        }
    }

    #[inline(always)]
    fn repeated(&mut self, size: usize) -> usize {
        let words = &self.words;
        let grams = words.starts.len().saturating_sub(size);
        self.seen.clear(self.positions.len());
        let (mut next, mut chars) = (0, 0);
        for &at in &self.positions {
            let at = at as usize;
            if at >= grams {
                break;
            }
            let (start, end) = (words.starts[at] as usize, words.starts[at + size] as usize);
            if at < next || end - start >= BEGINNING && !self.twins.marks.has(at as u32) {
                continue;
            }
            if !self.seen.insert(Word::new(&words.joined, start, end).hash()) {
                chars += self.chars(at, at + size);
                next = at + size;
            }
        }
        chars
    }

    /// The same of a long text: first each gram is replaced by the number of the first that is equal, in passes; then a
    /// bit for each of these is a set.
    fn repeated_of_long(&mut self, size: usize) -> usize {
        const NUMBERS: u64 = 1 << 32;
        let Words { joined, starts, .. } = &self.words;
        let (bytes, counts) = (joined, &mut self.counts);
        let ends = starts.iter().skip(size);
        self.grams.clear();
        self.grams.extend(starts.iter().zip(ends).zip(0..).map(|((&start, &end), at)| {
            // A number is taken for one that was replaced: those that occur once need not be.
            if self.once.has(at) { u64::from(at) } else { xxh3_64(&bytes[start as usize..end as usize]).max(NUMBERS) }
        }));
        counts.clear(0);
        let mut left = 0;
        for (gram, at) in self.grams.iter_mut().zip(0..).filter(|(gram, _)| **gram >= NUMBERS) {
            if counts.lacks(*gram, self.at_once) {
                left += 1;
            } else {
                *gram = u64::from(counts.add(*gram, at).1);
            }
        }
        let parts = Parts::of(left, self.at_once);
        for part in (0..parts.count).filter(|_| left > 0) {
            counts.clear(0);
            for (gram, at) in self.grams.iter_mut().zip(0..) {
                if *gram >= NUMBERS && parts.of_gram(*gram) == part {
                    *gram = u64::from(counts.add(*gram, at).1);
                }
            }
        }
        self.done.clear(self.grams.len());
        let (mut next, mut chars) = (0, 0);
        while let Some(&first) = self.grams.get(next) {
            if self.done.set(first as u32) {
                next += 1;
            } else {
                chars += self.chars(next, next + size);
                next += size;
            }
        }
        chars
    }

    /// Occurrences of 10-grams of words in lower case that occur more than once.
    #[inline(always)]
    pub(super) fn repeated_lower(&mut self) -> usize {
        if self.long {
            self.grams = Vec::new();
            self.words.hash_lower();
        }
        if self.long {
            let hashes = std::mem::take(&mut self.words.hashes);
            self.once.clear(hashes.len());
            let (_, occurrences) = self.count_long(hashes.len(), |push| {
                let mut at = 0..;
                word_grams(&hashes, |gram| push(gram, at.next().unwrap_or(0)));
            });
            return occurrences;
        }
        self.grams.clear();
        word_grams(&self.words.lower, |gram| self.grams.push(gram));
        let (grams, mut occurrences) = (&self.grams, 0);
        let each = |(times, _)| occurrences += if times == 2 { 2 } else { 1 };
        self.twins.read(grams.len(), grams.iter().copied(), |at| grams[at], each);
        occurrences
    }

    /// The sum of the k largest counts of 10-grams of characters, k the root of how many are distinct.
    #[inline(always)]
    pub(super) fn repeated_characters(&mut self, text: &str, grams: usize) -> usize {
        if self.long {
            self.shrink(); // the words are not needed any more
        }
        self.by_count.clear();
        self.by_count.resize(3, 0);
        let distinct = if self.long { self.count_characters(text, grams) } else { self.find_characters(text, grams) };
        let (mut left, mut sum) = (distinct.isqrt(), 0);
        for (count, &number) in self.by_count.iter().enumerate().skip(2).rev() {
            let taken = left.min(number as usize);
            sum += taken * count;
            left -= taken;
        }
        sum
    }

    /// Set `by_count` to how many 10-grams of characters occur twice, three times and so on. Returns how many are distinct.
    #[inline(always)]
    fn find_characters(&mut self, text: &str, grams: usize) -> usize {
        let Self { twins, by_count, grams: hashes, .. } = self;
        let mut distinct = grams;
        let each = |(times, _)| {
            let times = times as usize;
            if times == by_count.len() {
                by_count.push(0);
            }
            by_count[times - 1] = by_count[times - 1].wrapping_sub(1);
            by_count[times] += 1;
            distinct -= 1;
        };
        let bytes = text.as_bytes();
        if self.ascii {
            let gram_at = |at: usize| hash_of_ends::<GRAM>(&bytes[at..]);
            twins.read(grams, bytes.windows(GRAM).map(hash_of_ends::<GRAM>), gram_at, each);
        } else {
            hashes.clear();
            character_grams(text, |gram| hashes.push(gram));
            twins.read(grams, hashes.iter().copied(), |at| hashes[at], each);
        }
        distinct
    }

    /// The same of a long text.
    fn count_characters(&mut self, text: &str, grams: usize) -> usize {
        let parts = Parts::of(grams, self.at_once);
        let mut distinct = 0;
        for part in 0..parts.count {
            self.counts.clear(0);
            character_grams(text, |gram| {
                if parts.of_gram(gram) == part {
                    self.counts.add(gram, 0);
                }
            });
            distinct += self.counts.distinct();
            for count in self.counts.repeated() {
                if count >= self.by_count.len() {
                    self.by_count.resize(count + 1, 0);
                }
                self.by_count[count] += 1;
            }
        }
        distinct
    }

    /// Give back what only a very long text needs, and forget the text.
    pub(super) fn shrink(&mut self) {
        let words = &mut self.words;
        for hashes in [&mut words.hashes, &mut words.lower, &mut self.grams] {
            hashes.clear();
            hashes.shrink_to(KEPT);
        }
        for numbers in [&mut words.starts, &mut self.positions] {
            numbers.clear();
            numbers.shrink_to(KEPT);
        }
        words.joined.clear();
        words.joined.shrink_to(KEPT);
        words.lowered.clear();
        words.lowered.shrink_to(KEPT);
        (self.once, self.done) = (Marks::default(), Marks::default());
        self.filter.shrink(KEPT);
        self.seen.shrink(2 * KEPT);
        self.counts.shrink(2 * KEPT);
    }
}

impl Words {
    /// Make the hashes of a long text's words.
    fn hash(&mut self) {
        self.hashes.clear();
        self.hashes.reserve_exact(self.starts.len() - 1);
        let words = self.starts.windows(2).map(|word| Word::new(&self.joined, word[0] as usize, word[1] as usize));
        self.hashes.extend(words.map(|word| word.hash()));
    }

    /// The same in lower case.
    fn hash_lower(&mut self) {
        let Self { hashes, joined, starts, classes, lowered, .. } = self;
        hashes.clear();
        hashes.reserve_exact(starts.len() - 1);
        let words = starts.windows(2).map(|word| Word::new(joined, word[0] as usize, word[1] as usize));
        hashes.extend(
            words.map(|word| word.in_lower().map_or_else(|| lower_hash(classes, lowered, &word), |lower| lower.hash())),
        );
    }
}

/// The hash of a word in lower case, which is made in `lowered`.
fn lower_hash(classes: &Classes, lowered: &mut String, word: &Word<'_>) -> u64 {
    // Words are cut out of texts at white space.
    let word = std::str::from_utf8(word.bytes).unwrap_or_default();
    lowered.clear();
    if word.contains('Σ') {
        // Its lower case follows its neighbours.
        lowered.push_str(&word.to_lowercase());
    } else {
        for character in word.chars() {
            if classes.of(character) & UPPER == 0 {
                lowered.push(character);
            } else {
                lowered.extend(character.to_lowercase());
            }
        }
    }
    Word::new(lowered.as_bytes(), 0, lowered.len()).hash()
}

/// By length: the bytes of a word of at most 16.
static WITHIN: [[u64; 2]; BEGINNING + 1] = {
    let mut within = [[0; 2]; BEGINNING + 1];
    let mut length = 1;
    while length <= BEGINNING {
        let both = u128::MAX >> (8 * (BEGINNING - length));
        within[length] = [both as u64, (both >> 64) as u64];
        length += 1;
    }
    within
};

/// A word, and its first 16 bytes as numbers, with zeros behind its end.
pub(super) struct Word<'a> {
    bytes: &'a [u8],
    first: u64,
    second: u64,
}

impl<'a> Word<'a> {
    /// The word of a text from `start` to `end`, which is not `start`.
    #[inline(always)]
    pub(super) fn new(text: &'a [u8], start: usize, end: usize) -> Self {
        let bytes = &text[start..end];
        let mut padded = [0; BEGINNING];
        let ahead = text[start..].first_chunk::<BEGINNING>().unwrap_or_else(|| {
            padded[..bytes.len()].copy_from_slice(bytes);
            &padded
        });
        let [first, second] = WITHIN[bytes.len().min(BEGINNING)];
        let both = u128::from_le_bytes(*ahead);
        Self { bytes, first: both as u64 & first, second: (both >> 64) as u64 & second }
    }

    /// The first eight bytes.
    #[inline(always)]
    pub(super) fn beginning(&self) -> u64 {
        self.first
    }

    /// A hash; equal words have equal ones.
    #[inline(always)]
    fn hash(&self) -> u64 {
        if self.bytes.len() > BEGINNING {
            return xxh3_64(self.bytes);
        }
        let length = (self.bytes.len() as u64).wrapping_mul(FACTOR);
        folded(self.first ^ 0xA076_1D64_78BD_642F, self.second ^ 0xE703_7ED1_A0B4_28DB ^ length)
            .wrapping_add(self.first)
    }

    /// The same in lower case, if it has at most 16 bytes, all of ASCII.
    #[inline(always)]
    fn in_lower(&self) -> Option<Self> {
        const EACH: u64 = u64::MAX / 0xFF;
        const HIGHEST: u64 = 0x80 * EACH;
        if self.bytes.len() > BEGINNING || (self.first | self.second) & HIGHEST != 0 {
            return None;
        }
        // Of each byte the highest bit tells whether it is behind Z, or from A on.
        let lower = |bytes: u64| bytes | ((bytes + 0x3F * EACH) & !(bytes + 0x25 * EACH) & HIGHEST) >> 2;
        Some(Self { bytes: self.bytes, first: lower(self.first), second: lower(self.second) })
    }

    /// Write the word at the beginning of `to`, which has room for 16 bytes at least; what is behind it may change.
    #[inline(always)]
    fn copy(&self, to: &mut [u8]) {
        if self.bytes.len() <= BEGINNING {
            let both = u128::from(self.second) << 64 | u128::from(self.first);
            to[..BEGINNING].copy_from_slice(&both.to_le_bytes());
        } else {
            to[..self.bytes.len()].copy_from_slice(self.bytes);
        }
    }
}

/// Ranges of hashes, of which each has about as many grams as are counted at once, if grams are distinct.
#[derive(Clone, Copy)]
struct Parts {
    /// At least 2, a power of two.
    count: u64,
    shift: u32,
}

impl Parts {
    fn of(grams: usize, at_once: usize) -> Self {
        let count = grams.div_ceil(at_once).next_power_of_two().max(2) as u64;
        Self { count, shift: 64 - count.trailing_zeros() }
    }

    /// Mixed once more: a table puts hashes by their first bits, and those of a part must not share any.
    #[inline]
    fn of_gram(self, gram: u64) -> u64 {
        mixed(gram) >> self.shift
    }
}

#[inline]
fn better(best: (u32, u32), other: (u32, u32)) -> (u32, u32) {
    if other.0 > best.0 || other.0 == best.0 && other.1 < best.1 { other } else { best }
}

pub(super) fn chars_of(bytes: &[u8]) -> usize {
    bytes.iter().filter(|&&byte| byte & 0xC0 != 0x80).count()
}

#[inline]
fn appended(gram: u64, word: u64) -> u64 {
    gram.wrapping_mul(FACTOR).wrapping_add(word)
}

/// A gram of words or tokens, given their hashes.
#[inline]
pub(super) fn gram_of(hashes: &[u64]) -> u64 {
    folded(hashes.iter().copied().fold(0, appended), FACTOR)
}

/// Hand on the 10-grams of words.
#[inline]
fn word_grams(words: &[u64], mut push: impl FnMut(u64)) {
    let mut gram = words.iter().take(GRAM - 1).copied().fold(0, appended);
    for (&oldest, &newest) in words.iter().zip(words.iter().skip(GRAM - 1)) {
        gram = appended(gram, newest);
        push(folded(gram, FACTOR));
        gram = gram.wrapping_sub(oldest.wrapping_mul(LEAVING));
    }
}

/// The hash of the `N` bytes, 8 to 16, at the beginning of at least as many.
#[inline(always)]
fn hash_of_ends<const N: usize>(bytes: &[u8]) -> u64 {
    let (Some(first), Some(last)) = (bytes[..N].first_chunk(), bytes[..N].last_chunk()) else { return 0 };
    let first = u64::from_le_bytes(*first) ^ 0xA076_1D64_78BD_642F;
    let last = u64::from_le_bytes(*last).rotate_left(32) ^ 0xE703_7ED1_A0B4_28DB;
    folded(first, last)
}

#[inline(always)]
fn folded(first: u64, last: u64) -> u64 {
    let product = u128::from(first) * u128::from(last);
    (product as u64) ^ (product >> 64) as u64
}

/// Hand on the 10-grams of characters. Equal ones have equal bytes, ten if all of them are ASCII.
#[inline]
fn character_grams(text: &str, mut push: impl FnMut(u64)) {
    let bytes = text.as_bytes();
    let starts = text.char_indices().map(|(at, _)| at);
    let ends = text.char_indices().map(|(at, character)| at + character.len_utf8()).skip(GRAM - 1);
    for (start, end) in starts.zip(ends) {
        let gram = &bytes[start..end];
        push(if gram.len() == GRAM { hash_of_ends::<GRAM>(gram) } else { xxh3_64(gram) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Asked = Asked { tops: true, repeats: true, lower: true };

    fn answers(repetition: &mut Repetition, text: &str) -> ([usize; 3], [usize; 6], usize, usize) {
        repetition.begin(text, text.is_ascii());
        for word in text.split_whitespace() {
            repetition.push(word.as_bytes(), &[[0, word.len() as u32]], |_, _| true);
        }
        let (tops, repeats, lower) = (repetition.tops(), repetition.repeats(), repetition.repeated_lower());
        let grams = (text.chars().count() + 1).saturating_sub(GRAM);
        let characters = repetition.repeated_characters(text, grams);
        repetition.shrink();
        (tops, repeats, lower, characters)
    }

    #[test]
    fn a_long_text_is_answered_like_a_short_one() {
        let mut seed = 1;
        let mut next = |below: u64| {
            seed += 1;
            (mixed(seed) % below) as usize
        };
        let words = ["a", "b", "A", "é", "É", "ΣΑΣ", "ab", "aab", "longer-word", "中文"];
        let mut short = Repetition::new(ALL);
        for round in 0..400 {
            let (few, count) = (1 + next(10), next(300));
            let some: Vec<_> = (0..count).map(|_| words[next(few as u64)]).collect();
            let text = [some.join(" "), some[..count / 2].join(" ")].join("\n");
            let mut long = Repetition { from: 0, at_once: 1 + next(40), ..Repetition::new(ALL) };
            assert_eq!(answers(&mut long, &text), answers(&mut short, &text), "{round}: {text}");
        }
    }

    #[test]
    fn parts_have_all_grams_once() {
        for (grams, at_once) in [(0, 1), (1, 1), (5, 2), (1000, 3)] {
            let parts = Parts::of(grams, at_once);
            assert!(parts.count >= 2 && parts.count as usize * at_once >= grams);
            assert!((0..1000).all(|gram| parts.of_gram(gram) < parts.count));
        }
    }
}
