//! The bytes of an index, read where they are: nothing is copied, and nothing that is wrong in them makes a panic.

use thiserror::Error;
use xxhash_rust::xxh3::xxh3_64;

/// The first bytes of every index.
pub const MAGIC: [u8; 8] = *b"pm-leaks";
/// Of the format and of what its hashes are made of.
pub const VERSION: u32 = 1;

/// Where what the checksum is of begins.
pub(crate) const CHECKED_FROM: usize = 24;
/// The parts of an index, in the order of the file.
#[derive(Clone, Copy)]
#[repr(usize)]
pub(crate) enum Part {
    /// `u32 [questions + 1]`: where the tokens of each question begin.
    QuestionTokens,
    /// `u32`: hashes of tokens.
    Tokens,
    /// `u32 [questions + 1]`: where the items of each question begin.
    QuestionItems,
    /// `u32 [items + 1]`: where the numbers of each item begin.
    ItemNumbers,
    /// `u64`: hashes of numbers, sorted within an item.
    Numbers,
    /// `u32 [items + 1]`: where the answers of each item begin.
    ItemAnswers,
    /// `u32 [answers + 1]`: where the tokens of each answer begin.
    AnswerTokens,
    /// `u32`: hashes of tokens of answers.
    Answers,
    /// `u8 [answers]`: whether an answer is one token of one character.
    Letters,
    /// `u32 [items]`: the benchmark of each item.
    ItemBenchmarks,
    /// `u32 [items]`: the number of each item in the order in which they were given.
    ItemOrder,
    /// `u32 [items + 1]`: where the name of each item begins.
    ItemNames,
    /// UTF-8.
    Names,
    /// `u32 [benchmarks + 1]`: where the name of each benchmark begins.
    BenchmarkNames,
    /// UTF-8.
    Benchmarks,
    /// `u32 [buckets + 1]`: where the grams of each bucket begin.
    GramBuckets,
    /// `u32`: the low half of each gram's hash.
    Grams,
    /// `u8`: how many questions have each gram; 0 = 255 or more.
    GramCounts,
    /// `u32` pairs: number and count of each gram that 255 questions or more have.
    ManyCounts,
    /// `u32 [buckets + 1]`: where the rare grams of each bucket begin.
    RareBuckets,
    /// `u32` pairs: the low half of a gram's hash, and a question that cannot reach its threshold without its rare grams.
    Rare,
    /// `u64` words of the filter: of its first half, then as many of its second half.
    Filter,
    /// `u64` pairs, sorted: the hash of a short question, and its number.
    Short,
}

pub(crate) const PARTS: usize = Part::Short as usize + 1;
/// Magic, version, zero, checksum; length, questions, zero; offset and length of each part.
pub(crate) const HEADER: usize = 40 + 16 * PARTS;

/// What is wrong with an index.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Damage {
    /// It is something else.
    #[error("not an index of benchmark items: it does not begin with pm-leaks")]
    Magic,
    /// Another pairmill wrote it.
    #[error("the index has format {0}; expected format {VERSION}")]
    Version(u32),
    /// It was cut, or written over.
    #[error("the index is damaged: {0}")]
    Bytes(&'static str),
}

/// Numbers of 32 bits; those outside are 0.
#[derive(Clone, Copy)]
pub(crate) struct U32s<'a>(&'a [u8]);

impl<'a> U32s<'a> {
    #[inline]
    pub(crate) fn get(self, index: usize) -> u32 {
        let found = self.0.get(index.wrapping_mul(4)..).and_then(|rest| rest.first_chunk::<4>());
        found.map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }

    #[inline]
    pub(crate) fn len(self) -> usize {
        self.0.len() / 4
    }

    /// The numbers from one to another; none if they are not both within.
    #[inline]
    pub(crate) fn within(self, from: u32, to: u32) -> impl ExactSizeIterator<Item = u32> + 'a {
        let bytes = self.0.get(from as usize * 4..to as usize * 4).unwrap_or_default();
        bytes.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes))
    }

    /// What number `index` and the next one enclose.
    #[inline]
    pub(crate) fn range(self, index: usize) -> (u32, u32) {
        (self.get(index), self.get(index + 1))
    }
}

/// An index in memory, mapped or not.
#[derive(Clone, Copy)]
pub struct Index<'a> {
    parts: [&'a [u8]; PARTS],
    /// Distinct questions.
    pub questions: u32,
}

impl<'a> Index<'a> {
    /// Look at all bytes of an index.
    ///
    /// # Errors
    /// They are not those that were written.
    pub fn checked(bytes: &'a [u8]) -> Result<Self, Damage> {
        let found = Self::new(bytes)?;
        if xxh3_64(bytes.get(CHECKED_FROM..).unwrap_or_default()) != read_u64(bytes, 16) {
            return Err(Damage::Bytes("its checksum differs"));
        }
        Ok(found)
    }

    /// The index in bytes that were checked before.
    ///
    /// # Errors
    /// Their beginning or their length is not right.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Damage> {
        if !bytes.starts_with(&MAGIC) {
            return Err(Damage::Magic);
        }
        let version = read_u64(bytes, 8);
        if version != u64::from(VERSION) {
            return Err(Damage::Version(version as u32));
        }
        if bytes.len() < HEADER || read_u64(bytes, 24) != bytes.len() as u64 {
            return Err(Damage::Bytes("its length differs"));
        }
        let mut parts = [<&[u8]>::default(); PARTS];
        for (number, part) in parts.iter_mut().enumerate() {
            let (start, length) = (read_u64(bytes, 40 + 16 * number), read_u64(bytes, 48 + 16 * number));
            let range = start as usize..start.saturating_add(length) as usize;
            *part = bytes.get(range).ok_or(Damage::Bytes("a part is outside of it"))?;
        }
        let index = Self { parts, questions: read_u64(bytes, 32) as u32 };
        let tables = [Part::GramBuckets, Part::RareBuckets].map(|part| index.numbers(part).len());
        if tables.iter().any(|&many| many < 2) {
            return Err(Damage::Bytes("a table is empty"));
        }
        Ok(index)
    }

    #[inline]
    pub(crate) fn part(self, part: Part) -> &'a [u8] {
        self.parts[part as usize]
    }

    #[inline]
    pub(crate) fn numbers(self, part: Part) -> U32s<'a> {
        U32s(self.part(part))
    }

    /// How many items there are.
    #[must_use]
    pub fn items(self) -> usize {
        self.numbers(Part::ItemBenchmarks).len()
    }

    /// The names of all benchmarks, in the order in which they were given.
    #[must_use]
    pub fn benchmarks(self) -> Vec<&'a str> {
        let starts = self.numbers(Part::BenchmarkNames);
        (0..starts.len().saturating_sub(1)).map(|number| self.name(Part::Benchmarks, starts.range(number))).collect()
    }

    /// The number of an item's benchmark, and the item's name.
    #[must_use]
    pub fn item(self, item: u32) -> (u32, &'a str) {
        let item = item as usize;
        let name = self.name(Part::Names, self.numbers(Part::ItemNames).range(item));
        (self.numbers(Part::ItemBenchmarks).get(item), name)
    }

    fn name(self, part: Part, (from, to): (u32, u32)) -> &'a str {
        let bytes = self.part(part).get(from as usize..to as usize).unwrap_or_default();
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    /// How many questions have this gram; 0 if none has.
    pub(crate) fn count(self, gram: u64) -> u32 {
        let Some(number) = self.number(gram) else { return 0 };
        match self.part(Part::GramCounts).get(number) {
            Some(&count) if count > 0 => u32::from(count),
            _ => self.many(number as u32),
        }
    }

    /// The place of a gram that a question has.
    #[inline]
    pub(crate) fn number(self, gram: u64) -> Option<usize> {
        let buckets = self.numbers(Part::GramBuckets);
        let (from, to) = buckets.range(bucket(gram, buckets.len() - 1));
        let place = self.numbers(Part::Grams).within(from, to).position(|low| low == gram as u32);
        place.map(|place| from as usize + place)
    }

    fn many(self, number: u32) -> u32 {
        let pairs = self.numbers(Part::ManyCounts);
        let (mut low, mut high) = (0, pairs.len() / 2);
        while low < high {
            let middle = (low + high) / 2;
            match pairs.get(2 * middle).cmp(&number) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return pairs.get(2 * middle + 1),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        0
    }

    /// The questions that have this gram among their rare ones.
    #[inline]
    pub(crate) fn rare(self, gram: u64) -> impl Iterator<Item = u32> + 'a {
        let buckets = self.numbers(Part::RareBuckets);
        let (from, to) = buckets.range(bucket(gram, buckets.len() - 1));
        let pairs = self.numbers(Part::Rare);
        let bytes = pairs.0.get(from as usize * 8..to as usize * 8).unwrap_or_default();
        let low = (gram as u32).to_le_bytes();
        bytes.as_chunks::<8>().0.iter().filter(move |pair| pair[..4] == low).map(|pair| {
            let [_, _, _, _, question @ ..] = *pair;
            u32::from_le_bytes(question)
        })
    }

    /// The filter of all seeds.
    #[inline]
    pub(crate) fn filter(self) -> Filter<'a> {
        let words = self.part(Part::Filter).as_chunks::<8>().0;
        let (first, second) = words.split_at(words.len() / 2);
        Filter { first, second }
    }

    /// The questions of fewer than five tokens that have this hash.
    pub(crate) fn short(self, hash: u64) -> impl Iterator<Item = u32> + 'a {
        let pairs = self.part(Part::Short).as_chunks::<16>().0;
        let first = pairs.partition_point(|pair| read_u64(pair, 0) < hash);
        let from = pairs.get(first..).unwrap_or_default();
        from.iter().take_while(move |pair| read_u64(*pair, 0) == hash).map(|pair| read_u64(pair, 8) as u32)
    }
}

/// Which seeds may be a question's. Each half has three bits of a seed in one word.
///
/// Of other seeds the first half lets through one in thirty, and the second one in thirty of these. With a single half of
/// the same size more memory would be reached at random, and the branches on its bits would be mispredicted.
#[derive(Clone, Copy)]
pub(crate) struct Filter<'a> {
    first: &'a [[u8; 8]],
    second: &'a [[u8; 8]],
}

impl Filter<'_> {
    #[inline]
    pub(crate) fn may_have(self, seed: u64) -> bool {
        has(self.first, seed) && has(self.second, again(seed))
    }
}

#[inline]
fn has(words: &[[u8; 8]], seed: u64) -> bool {
    let bits = bits(seed);
    words.get(bucket(seed, words.len())).is_some_and(|&word| u64::from_le_bytes(word) & bits == bits)
}

/// The hash of a seed in the second half of the filter.
#[inline]
pub(crate) fn again(seed: u64) -> u64 {
    seed.rotate_left(32).wrapping_mul(0xD6E8_FEB8_6659_FD93)
}

/// The bits of a seed in its word.
#[inline]
pub(crate) fn bits(seed: u64) -> u64 {
    [0, 6, 12].into_iter().fold(0, |bits, shift| bits | 1 << ((seed >> shift) & 63))
}

/// The bucket of a hash among some of them.
#[inline]
pub(crate) fn bucket(hash: u64, buckets: usize) -> usize {
    ((u128::from(hash) * buckets as u128) >> 64) as usize
}

#[inline]
pub(crate) fn read_u64(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()).map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
