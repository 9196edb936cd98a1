//! An index is made of items in memory, and is then bytes.

use std::borrow::Borrow;

use rustc_hash::{FxHashMap, FxHashSet};
use thiserror::Error;
use xxhash_rust::xxh3::xxh3_64;

use super::index::{CHECKED_FROM, HEADER, MAGIC, PARTS, Part, VERSION, again, bits, bucket};
use super::{SEED, Weighed, distinct_grams, gram, rarest, seeds, weight};
use crate::curate::text::{Numbers, Tokens};

/// Bytes that an index may take.
pub const MOST_BYTES: u64 = 2 << 30;
/// Of a seed in the filter.
const FILTER_BITS: usize = 16;
/// A byte has the counts below this.
const MANY: u32 = 256;

/// There are too many items for one index.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("the index of the first {items} items takes {bytes} bytes; expected at most {most}")]
pub struct TooLarge {
    /// Items up to where it was too large.
    pub items: usize,
    /// Bytes that they take at least.
    pub bytes: u64,
    /// What an index may take.
    pub most: u64,
}

struct Item {
    question: u32,
    benchmark: u32,
    numbers: (u32, u32),
    answers: (u32, u32),
    name: (u32, u32),
}

/// The items that have been read.
#[derive(Default)]
pub struct Builder {
    most: u64,
    benchmarks: Vec<String>,
    items: Vec<Item>,
    /// Questions of equal tokens are one question.
    questions: FxHashMap<Box<[u32]>, u32>,
    tokens: Vec<u32>,
    token_starts: Vec<u32>,
    numbers: Vec<u64>,
    answers: Vec<u32>,
    answer_starts: Vec<u32>,
    letters: Vec<u8>,
    names: String,
    reader: Tokens,
    number_reader: Numbers,
    hashes: Vec<u32>,
}

impl Builder {
    /// Of an index of at most `most` bytes.
    #[must_use]
    pub fn new(most: u64) -> Self {
        let most = most.min(MOST_BYTES);
        Self { most, token_starts: vec![0], answer_starts: vec![0], ..Self::default() }
    }

    /// Add an item of a benchmark.
    ///
    /// # Errors
    /// The index would be too large.
    pub fn add<'t>(
        &mut self,
        benchmark: &str,
        name: &str,
        question: &str,
        answers: impl IntoIterator<Item = &'t str>,
    ) -> Result<(), TooLarge> {
        let benchmark = self.benchmark(benchmark);
        self.reader.read(question);
        self.hashes.clear();
        self.reader.hashes_into(&mut self.hashes);
        let next = self.questions.len() as u32;
        let number = *self.questions.entry(self.hashes.as_slice().into()).or_insert(next);
        if number == next {
            self.tokens.extend_from_slice(&self.hashes);
            self.token_starts.push(self.tokens.len() as u32);
        }
        let first_number = self.numbers.len() as u32;
        self.number_reader.read(question);
        self.numbers.extend(self.number_reader.iter().map(|one| xxh3_64(one.as_bytes())));
        self.numbers[first_number as usize..].sort_unstable();
        let first_answer = self.letters.len() as u32;
        for answer in answers {
            self.reader.read(answer);
            self.reader.hashes_into(&mut self.answers);
            self.answer_starts.push(self.answers.len() as u32);
            self.letters.push(u8::from(is_letter(&self.reader)));
        }
        let first_name = self.names.len() as u32;
        self.names.push_str(name);
        self.items.push(Item {
            question: number,
            benchmark,
            numbers: (first_number, self.numbers.len() as u32),
            answers: (first_answer, self.letters.len() as u32),
            name: (first_name, self.names.len() as u32),
        });
        self.refuse_more_than(self.least_bytes())
    }

    fn benchmark(&mut self, name: &str) -> u32 {
        let known = self.benchmarks.iter().rposition(|one| one == name);
        known.unwrap_or_else(|| {
            self.benchmarks.push(name.to_owned());
            self.benchmarks.len() - 1
        }) as u32
    }

    /// Bytes that the index takes at least.
    fn least_bytes(&self) -> u64 {
        let tokens = 8 * self.tokens.len() + 4 * self.answers.len();
        (tokens + 8 * self.numbers.len() + 16 * self.items.len() + self.names.len()) as u64
    }

    fn refuse_more_than(&self, bytes: u64) -> Result<(), TooLarge> {
        let (items, most) = (self.items.len(), self.most);
        if bytes > most { Err(TooLarge { items, bytes, most }) } else { Ok(()) }
    }

    /// The bytes of the index.
    ///
    /// # Errors
    /// It would be too large.
    pub fn finish(mut self) -> Result<Vec<u8>, TooLarge> {
        // What follows is read by question.
        let mut order: Vec<u32> = (0..self.items.len() as u32).collect();
        order.sort_by_key(|&item| self.items[item as usize].question);
        self.questions = FxHashMap::default();
        let grams = Grams::of(&self);
        let rare = self.rare(&grams);
        let filter = self.filter();
        let short = self.short();

        let mut out = Parts::new();
        let in_order = || order.iter().map(|&item| &self.items[item as usize]);
        out.put(Part::QuestionTokens, &self.token_starts);
        out.put(Part::Tokens, &self.tokens);
        out.put(Part::QuestionItems, starts(in_order().map(|item| item.question), self.token_starts.len() - 1));
        out.put(Part::ItemNumbers, ends(in_order().map(|item| item.numbers)));
        out.put_long(Part::Numbers, in_order().flat_map(|item| &self.numbers[range(item.numbers)]).copied());
        out.put(Part::ItemAnswers, ends(in_order().map(|item| item.answers)));
        let spans = || in_order().flat_map(|item| item.answers.0..item.answers.1).map(|answer| self.answer(answer));
        out.put(Part::AnswerTokens, ends(spans()));
        out.put(Part::Answers, spans().flat_map(|span| &self.answers[range(span)]));
        out.put_bytes(Part::Letters, in_order().map(|item| &self.letters[range(item.answers)]));
        out.put(Part::ItemBenchmarks, in_order().map(|item| item.benchmark));
        out.put(Part::ItemOrder, &order);
        out.put(Part::ItemNames, ends(in_order().map(|item| item.name)));
        out.put_bytes(Part::Names, in_order().map(|item| &self.names.as_bytes()[range(item.name)]));
        out.put(Part::BenchmarkNames, ends(self.benchmarks.iter().map(|name| (0, name.len() as u32))));
        out.put_bytes(Part::Benchmarks, self.benchmarks.iter().map(String::as_bytes));
        out.put(Part::GramBuckets, &grams.buckets);
        out.put(Part::Grams, grams.hashes.iter().map(|&hash| hash as u32));
        let counts = grams.counts.iter().map(|&count| if count < MANY { count as u8 } else { 0 });
        out.put_bytes(Part::GramCounts, counts.map(|count| [count]));
        let many = (0_u32..).zip(&grams.counts).filter(|&(_, &count)| count >= MANY);
        out.put(Part::ManyCounts, many.flat_map(|(number, &count)| [number, count]));
        let buckets = buckets_of(rare.len());
        out.put(Part::RareBuckets, starts(rare.iter().map(|&(hash, _)| bucket(hash, buckets) as u32), buckets));
        out.put(Part::Rare, rare.iter().flat_map(|&(hash, question)| [hash as u32, question]));
        out.put_long(Part::Filter, filter);
        out.put_long(Part::Short, short.into_iter().flat_map(<[u64; 2]>::from));
        self.refuse_more_than(out.bytes.len() as u64)?;
        Ok(out.finish(self.token_starts.len() - 1))
    }

    fn question_tokens(&self) -> impl Iterator<Item = &[u32]> {
        self.token_starts.windows(2).map(|pair| &self.tokens[pair[0] as usize..pair[1] as usize])
    }

    fn answer(&self, number: u32) -> (u32, u32) {
        (self.answer_starts[number as usize], self.answer_starts[number as usize + 1])
    }

    /// The rarest grams of each question that no field with the question's threshold can be without; sorted.
    fn rare(&self, grams: &Grams) -> Vec<(u64, u32)> {
        let many = (self.token_starts.len() - 1) as u32;
        let mut found = Vec::new();
        let (mut distinct, mut seen) = (Vec::new(), FxHashSet::default());
        for (question, tokens) in (0..).zip(self.question_tokens()) {
            if tokens.len() < SEED {
                continue;
            }
            distinct_grams(tokens, &mut distinct, &mut seen);
            let counted = distinct.iter().map(|&one| (grams.count(one), one));
            let mut weighed: Vec<Weighed> = counted.map(|(count, one)| (count, one, weight(many, count))).collect();
            let taken = rarest(&mut weighed, tokens.len());
            found.extend(weighed[..taken].iter().map(|&(_, one, _)| (one, question)));
        }
        found.sort_unstable();
        found
    }

    fn filter(&self) -> Vec<u64> {
        let many: usize = self.question_tokens().map(|tokens| (tokens.len() + 1).saturating_sub(SEED)).sum();
        let half = (many * FILTER_BITS).div_ceil(2 * 64).max(1);
        let mut words = vec![0_u64; 2 * half];
        let (first, second) = words.split_at_mut(half);
        for seed in self.question_tokens().flat_map(seeds) {
            first[bucket(seed, half)] |= bits(seed);
            second[bucket(again(seed), half)] |= bits(again(seed));
        }
        words
    }

    /// Hash and number of each question that has tokens, but no seed; sorted.
    fn short(&self) -> Vec<(u64, u64)> {
        let few = (0..).zip(self.question_tokens()).filter(|(_, tokens)| (1..SEED).contains(&tokens.len()));
        let mut found: Vec<_> = few.map(|(question, tokens)| (gram(tokens), question)).collect();
        found.sort_unstable();
        found
    }
}

/// The bytes of an index, one part after another.
struct Parts {
    bytes: Vec<u8>,
    /// Offset and length of each.
    places: [(usize, usize); PARTS],
}

impl Parts {
    fn new() -> Self {
        Self { bytes: vec![0; HEADER], places: [(HEADER, 0); PARTS] }
    }

    fn put<N: Borrow<u32>>(&mut self, part: Part, numbers: impl IntoIterator<Item = N>) {
        self.put_bytes(part, numbers.into_iter().map(|number| number.borrow().to_le_bytes()));
    }

    fn put_long(&mut self, part: Part, numbers: impl IntoIterator<Item = u64>) {
        self.put_bytes(part, numbers.into_iter().map(u64::to_le_bytes));
    }

    fn put_bytes<B: AsRef<[u8]>>(&mut self, part: Part, pieces: impl IntoIterator<Item = B>) {
        let start = self.bytes.len();
        for piece in pieces {
            self.bytes.extend_from_slice(piece.as_ref());
        }
        self.places[part as usize] = (start, self.bytes.len() - start);
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
    }

    fn finish(self, questions: usize) -> Vec<u8> {
        let Self { mut bytes, places } = self;
        let head = [VERSION as usize, 0, bytes.len(), questions];
        let numbers = head.into_iter().chain(places.into_iter().flat_map(<[usize; 2]>::from));
        let header: Vec<u8> =
            MAGIC.into_iter().chain(numbers.flat_map(|number| (number as u64).to_le_bytes())).collect();
        bytes[..HEADER].copy_from_slice(&header);
        let checksum = xxh3_64(&bytes[CHECKED_FROM..]);
        bytes[16..CHECKED_FROM].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }
}

/// All grams by hash, and how many questions have each.
struct Grams {
    hashes: Vec<u64>,
    counts: Vec<u32>,
    /// Where each bucket begins.
    buckets: Vec<u32>,
}

impl Grams {
    fn of(items: &Builder) -> Self {
        let mut hashes = Vec::with_capacity(items.tokens.len());
        let (mut distinct, mut seen) = (Vec::new(), FxHashSet::default());
        for tokens in items.question_tokens() {
            distinct_grams(tokens, &mut distinct, &mut seen);
            hashes.extend_from_slice(&distinct);
        }
        hashes.sort_unstable();
        let counts = hashes.chunk_by(|one, next| one == next).map(|equal| equal.len() as u32).collect();
        hashes.dedup();
        let many = buckets_of(hashes.len());
        let buckets = starts(hashes.iter().map(|&hash| bucket(hash, many) as u32), many);
        Self { hashes, counts, buckets }
    }

    fn count(&self, gram: u64) -> u32 {
        let place = bucket(gram, self.buckets.len() - 1);
        let (from, to) = (self.buckets[place] as usize, self.buckets[place + 1] as usize);
        self.hashes[from..to].iter().position(|&hash| hash == gram).map_or(0, |number| self.counts[from + number])
    }
}

/// Whether these are one token of one character.
pub(crate) fn is_letter(tokens: &Tokens) -> bool {
    tokens.len() == 1 && tokens.get(0).chars().nth(1).is_none()
}

/// About two of a table's entries share a bucket.
fn buckets_of(entries: usize) -> usize {
    entries / 2 + 1
}

fn range((from, to): (u32, u32)) -> std::ops::Range<usize> {
    from as usize..to as usize
}

/// Where each group of `many` begins, of sorted numbers of groups, and where the last one ends.
fn starts(groups: impl Iterator<Item = u32>, many: usize) -> Vec<u32> {
    let mut found = vec![0_u32; many + 1];
    for group in groups {
        found[group as usize + 1] += 1;
    }
    let mut sum = 0;
    for start in &mut found {
        sum += *start;
        *start = sum;
    }
    found
}

/// Where spans begin when they are put one after another, and where the last one ends.
fn ends(spans: impl Iterator<Item = (u32, u32)>) -> Vec<u32> {
    let mut end = 0;
    let ends = spans.map(|(from, to)| {
        end += to - from;
        end
    });
    let ends: Vec<u32> = ends.collect();
    std::iter::once(0).chain(ends).collect()
}
