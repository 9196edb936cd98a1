//! Merges from counted words, as the trainer of `tokenizers` 0.22.2 finds them.
//!
//! Take the pair of highest count, at equal counts that of the smallest (left id, right id); join it everywhere, left
//! to right; until the vocabulary is full, no pair is left, or the best count is below the minimum.
//!
//! All pairs that a merge makes hold its new symbol, and no later merge makes them again: a pair is complete when it is
//! entered, its count only falls from then on, and nothing depends on the order of the words.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use rustc_hash::FxHashMap;

use crate::bpe::alphabet::alphabet;

/// Words, or words of one merge, between two calls of `poll`.
const WORDS_BETWEEN_POLLS: usize = 1 << 14;

/// What to train.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// Tokens wanted, special tokens and alphabet included; those two are never cut, however small this is.
    pub vocab_size: usize,
    /// The first ids; one given again is entered once.
    pub special_tokens: &'a [String],
    /// No merge of a pair that occurs less often.
    pub min_frequency: u64,
    /// All 256 byte symbols, not only those of the bytes in the words.
    pub full_alphabet: bool,
}

/// A trained vocabulary.
#[derive(Debug, PartialEq, Eq)]
pub struct Trained {
    /// Tokens, in byte symbols, by id.
    pub vocab: Vec<String>,
    /// Pairs of ids, by rank.
    pub merges: Vec<(u32, u32)>,
    /// How many pairs of the text each merge replaced; each made the text one token shorter.
    pub replaced: Vec<i64>,
    /// Whether a pair occurred more than 2^31 − 1 times. The reference counts in 32 bits and would have lost it.
    pub i32_overflow: bool,
}

/// Why words cannot be trained on.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrainError {
    /// A count below 1.
    #[error("row {row} has the count {count}; expected at least 1")]
    Count {
        /// The place of the word among all, from 0.
        row: u64,
        /// Its count.
        count: i64,
    },
    /// Counts times lengths sum to more than 2^63 − 1, or the words take more than 2^32 − 1 places.
    #[error(
        "too much to train on; expected fewer than 2^63 bytes of text, and distinct words of fewer than 2^32 bytes and \
         three for each"
    )]
    TooMuch,
}

/// Tokens by id, and the ids of those that were given.
///
/// No two merges make the same token, and an index of all of them would take more memory than they do.
#[derive(Default)]
struct Vocab {
    tokens: Vec<String>,
    given: FxHashMap<String, u32>,
}

impl Vocab {
    /// The id of a special token or of a symbol of the alphabet.
    fn give(&mut self, token: String) -> u32 {
        if let Some(&id) = self.given.get(&token) {
            return id;
        }
        let id = self.push(token.clone());
        self.given.insert(token, id);
        id
    }

    /// The id of what a merge makes: a string that was given keeps its id.
    fn merge(&mut self, left: u32, right: u32) -> u32 {
        let token = format!("{}{}", self.tokens[left as usize], self.tokens[right as usize]);
        self.given.get(&token).copied().unwrap_or_else(|| self.push(token))
    }

    fn push(&mut self, token: String) -> u32 {
        self.tokens.push(token);
        self.tokens.len() as u32 - 1
    }
}

/// Before the symbols of a word: their number, and the halves of its count.
const HEAD: usize = 3;

/// Counted words in one list: of each its head, and its symbols, which are bytes until the training begins.
///
/// A word's place in the list is all that a pair remembers of it, so that one miss of the processor's caches brings
/// count and symbols. Words of one byte have no pair and are only counted.
struct Corpus {
    list: Vec<u32>,
    seen: [bool; 256],
    words: u64,
    /// The bytes of the text.
    bytes: i64,
}

impl Default for Corpus {
    fn default() -> Self {
        Self { list: Vec::new(), seen: [false; 256], words: 0, bytes: 0 }
    }
}

impl Corpus {
    fn add(&mut self, word: &[u8], count: i64) -> Result<(), TrainError> {
        if count < 1 {
            return Err(TrainError::Count { row: self.words, count });
        }
        if self.list.len() + HEAD + word.len() >= u32::MAX as usize {
            return Err(TrainError::TooMuch);
        }
        // No pair can occur more often than there are bytes.
        let bytes = i64::try_from(word.len()).ok().and_then(|length| count.checked_mul(length));
        self.bytes = bytes.and_then(|bytes| self.bytes.checked_add(bytes)).ok_or(TrainError::TooMuch)?;
        self.words += 1;
        for &byte in word {
            self.seen[usize::from(byte)] = true;
        }
        if word.len() > 1 {
            self.list.extend([word.len() as u32, count as u32, (count >> 32) as u32]);
            self.list.extend(word.iter().map(|&byte| u32::from(byte)));
        }
        Ok(())
    }

    /// The count and the symbols of the word at `place`.
    #[inline]
    fn word(&mut self, place: u32) -> (i64, &mut [u32]) {
        let (head, symbols) = self.list[place as usize..].split_at_mut(HEAD);
        (i64::from(head[2]) << 32 | i64::from(head[1]), &mut symbols[..head[0] as usize])
    }

    /// Call `each` with the place of every word; none may have been shortened.
    fn each<E>(
        &mut self,
        poll: &mut dyn FnMut() -> Result<(), E>,
        mut each: impl FnMut(u32, i64, &mut [u32]),
    ) -> Result<(), E> {
        let mut place = 0;
        let mut done = 0_usize;
        while place < self.list.len() {
            let (count, symbols) = self.word(place as u32);
            each(place as u32, count, symbols);
            place += HEAD + symbols.len();
            done += 1;
            if done.is_multiple_of(WORDS_BETWEEN_POLLS) {
                poll()?;
            }
        }
        Ok(())
    }
}

struct Pair {
    ids: (u32, u32),
    count: i64,
    /// The words that had it when it was entered: a stretch of [`Pairs::places`].
    start: usize,
    length: u32,
}

/// All pairs that may be merged some day. One that is entered with too low a count never can be, and is left out: most
/// pairs occur once.
struct Pairs {
    least: i64,
    numbers: FxHashMap<(u32, u32), u32>,
    pairs: Vec<Pair>,
    places: Vec<u32>,
    /// Pairs by the count that they were entered with, or last looked at with. No merge makes a pair of a higher count
    /// than its own, so the highest of these only falls, and what is below it need not be in order.
    waiting: BTreeMap<i64, Vec<u32>>,
    /// The count of those in `next`.
    level: i64,
    next: BinaryHeap<Reverse<((u32, u32), u32)>>,
    i32_overflow: bool,
}

impl Pairs {
    fn new(least: i64) -> Self {
        Self {
            least,
            numbers: FxHashMap::default(),
            pairs: Vec::new(),
            places: Vec::new(),
            waiting: BTreeMap::new(),
            level: i64::MAX,
            next: BinaryHeap::new(),
            i32_overflow: false,
        }
    }

    /// Enter a new pair, of which `words` words are going to be told; returns where in `places`, if it is entered.
    fn enter(&mut self, ids: (u32, u32), count: i64, words: u32) -> Option<usize> {
        if count < self.least {
            return None;
        }
        self.i32_overflow |= count > i64::from(i32::MAX);
        let number = self.pairs.len() as u32;
        let start = self.places.len();
        self.places.resize(start + words as usize, 0);
        self.pairs.push(Pair { ids, count, start, length: words });
        self.numbers.insert(ids, number);
        self.queue(number);
        Some(start)
    }

    #[inline]
    fn subtract(&mut self, ids: (u32, u32), count: i64) {
        if let Some(&number) = self.numbers.get(&ids) {
            self.pairs[number as usize].count -= count;
        }
    }

    fn queue(&mut self, number: u32) {
        let &Pair { ids, count, .. } = &self.pairs[number as usize];
        if count == self.level {
            self.next.push(Reverse((ids, number)));
        } else if count >= self.least {
            self.waiting.entry(count).or_default().push(number);
        }
    }

    /// Take the pair to merge next.
    fn best(&mut self) -> Option<u32> {
        loop {
            while let Some(Reverse((_, number))) = self.next.pop() {
                if self.pairs[number as usize].count == self.level {
                    return Some(number);
                }
                self.queue(number);
            }
            let (level, numbers) = self.waiting.pop_last()?;
            self.level = level;
            for number in numbers {
                self.queue(number);
            }
        }
    }
}

/// What a merge changes on one of its sides: the neighbours of what it joined.
#[derive(Default)]
struct Side {
    /// By symbol.
    neighbours: Vec<Neighbour>,
    met: Vec<u32>,
    /// (symbol, place of a word in which it is a neighbour).
    places: Vec<(u32, u32)>,
}

#[derive(Clone, Copy, Default)]
struct Neighbour {
    count: i64,
    words: u32,
    /// The word it was last met in.
    last: u32,
}

impl Side {
    #[inline]
    fn meet(&mut self, symbol: u32, count: i64, word: u32) {
        let neighbour = &mut self.neighbours[symbol as usize];
        neighbour.count += count;
        if neighbour.words == 0 {
            self.met.push(symbol);
        } else if neighbour.last == word {
            return;
        }
        neighbour.words += 1;
        neighbour.last = word;
        self.places.push((symbol, word));
    }

    /// Hand what was met to `pairs` and forget it; `old` and `new` say which pairs a neighbour left and entered.
    fn settle(&mut self, pairs: &mut Pairs, old: impl Fn(u32) -> (u32, u32), new: impl Fn(u32) -> (u32, u32)) {
        let base = pairs.places.len();
        for &symbol in &self.met {
            let neighbour = &mut self.neighbours[symbol as usize];
            pairs.subtract(old(symbol), neighbour.count);
            // From here on `last` is where the next of its words goes.
            neighbour.last = match pairs.enter(new(symbol), neighbour.count, neighbour.words) {
                Some(start) => (start - base) as u32,
                None => u32::MAX,
            };
        }
        for (symbol, word) in self.places.drain(..) {
            let next = &mut self.neighbours[symbol as usize].last;
            if *next != u32::MAX {
                pairs.places[base + *next as usize] = word;
                *next += 1;
            }
        }
        for symbol in self.met.drain(..) {
            self.neighbours[symbol as usize] = Neighbour::default();
        }
    }
}

/// Trains on the words added. Their order does not matter, nor whether a word is added once or in parts.
#[derive(Default)]
pub struct Trainer {
    corpus: Corpus,
}

impl Trainer {
    /// Add a word that occurs `count` times.
    ///
    /// # Errors
    /// Those of [`TrainError`].
    pub fn add(&mut self, word: &[u8], count: i64) -> Result<(), TrainError> {
        self.corpus.add(word, count)
    }

    /// How many words were added.
    pub fn words(&self) -> u64 {
        self.corpus.words
    }

    /// The bytes of the text that the words make up: counts times lengths.
    pub fn bytes(&self) -> i64 {
        self.corpus.bytes
    }

    /// Train. `poll` is called every few milliseconds; what it fails with ends the training.
    ///
    /// # Errors
    /// Those of `poll`.
    pub fn train<E>(self, options: Options<'_>, poll: &mut dyn FnMut() -> Result<(), E>) -> Result<Trained, E> {
        let Self { mut corpus } = self;
        let mut vocab = Vocab::default();
        for token in options.special_tokens {
            vocab.give(token.clone());
        }
        let bytes_by_symbol: BTreeMap<char, usize> = alphabet().into_iter().zip(0..).collect();
        let mut byte_ids = [0; 256];
        for (symbol, byte) in bytes_by_symbol {
            if corpus.seen[byte] || options.full_alphabet {
                byte_ids[byte] = vocab.give(symbol.to_string());
            }
        }

        let least = i64::try_from(options.min_frequency).unwrap_or(i64::MAX).max(1);
        let mut pairs = first_pairs(&mut corpus, &byte_ids, least, poll)?;
        let mut merges = Vec::new();
        let mut replaced = Vec::new();
        let (mut before, mut after) = (Side::default(), Side::default());
        while vocab.tokens.len() < options.vocab_size {
            let Some(number) = pairs.best() else { break };
            let (left, right) = pairs.pairs[number as usize].ids;
            let joined = vocab.merge(left, right);
            for side in [&mut before, &mut after] {
                side.neighbours.resize(vocab.tokens.len(), Neighbour::default());
            }
            let ids = Joined { left, right, joined };
            merges.push((left, right));
            replaced.push(ids.join(&mut corpus, &mut pairs, number, &mut before, &mut after, poll)?);
            poll()?;
        }
        Ok(Trained { vocab: vocab.tokens, merges, replaced, i32_overflow: pairs.i32_overflow })
    }
}

/// The pairs of the bytes, counted by two bytes; the bytes become ids.
fn first_pairs<E>(
    corpus: &mut Corpus,
    byte_ids: &[u32; 256],
    least: i64,
    poll: &mut dyn FnMut() -> Result<(), E>,
) -> Result<Pairs, E> {
    let mut pairs = Pairs::new(least);
    let mut found = vec![Neighbour::default(); 1 << 16];
    let number = |pair: &[u32]| (pair[0] << 8 | pair[1]) as usize;
    corpus.each(poll, |word, count, symbols| {
        for pair in symbols.windows(2) {
            let one = &mut found[number(pair)];
            one.count += count;
            if one.words == 0 || one.last != word {
                one.words += 1;
                one.last = word;
            }
        }
    })?;
    let mut next = vec![usize::MAX; 1 << 16];
    for (bytes, one) in found.iter_mut().enumerate() {
        if one.words > 0 {
            let ids = (byte_ids[bytes >> 8], byte_ids[bytes & 0xFF]);
            next[bytes] = pairs.enter(ids, one.count, one.words).unwrap_or(usize::MAX);
        }
        one.words = 0;
    }
    corpus.each(poll, |word, _, symbols| {
        for pair in symbols.windows(2) {
            let one = &mut found[number(pair)];
            let next = &mut next[number(pair)];
            if *next != usize::MAX && (one.words == 0 || one.last != word) {
                pairs.places[*next] = word;
                *next += 1;
                one.words = 1;
                one.last = word;
            }
        }
        for symbol in symbols {
            *symbol = byte_ids[*symbol as usize];
        }
    })?;
    Ok(pairs)
}

/// A merge: `left` and `right` become `joined`.
struct Joined {
    left: u32,
    right: u32,
    joined: u32,
}

impl Joined {
    /// Join in all words of the pair `number`; returns how often, in the text.
    fn join<E>(
        &self,
        corpus: &mut Corpus,
        pairs: &mut Pairs,
        number: u32,
        before: &mut Side,
        after: &mut Side,
        poll: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<i64, E> {
        let &Self { left, right, joined } = self;
        let &Pair { start, length, .. } = &pairs.pairs[number as usize];
        let mut replaced = 0;
        for (done, &word) in (1_usize..).zip(&pairs.places[start..start + length as usize]) {
            replaced += self.join_in_word(corpus, word, before, after);
            if done.is_multiple_of(WORDS_BETWEEN_POLLS) {
                poll()?;
            }
        }
        before.settle(pairs, |symbol| (symbol, left), |symbol| (symbol, joined));
        // Where one joined symbol follows another, what was lost is the pair between the two.
        let lost = |symbol| (right, if symbol == joined { left } else { symbol });
        after.settle(pairs, lost, |symbol| (joined, symbol));
        Ok(replaced)
    }

    #[inline]
    fn join_in_word(&self, corpus: &mut Corpus, place: u32, before: &mut Side, after: &mut Side) -> i64 {
        let &Self { left, right, joined } = self;
        let (count, symbols) = corpus.word(place);
        let mut read = 0;
        let mut written = 0;
        let mut times = 0;
        while read < symbols.len() {
            if symbols[read] != left || symbols.get(read + 1) != Some(&right) {
                symbols[written] = symbols[read];
                read += 1;
            } else {
                if written > 0 && symbols[written - 1] != joined {
                    before.meet(symbols[written - 1], count, place);
                }
                match symbols[read + 2..] {
                    [] => {}
                    [first, second, ..] if first == left && second == right => after.meet(joined, count, place),
                    [symbol, ..] => after.meet(symbol, count, place),
                }
                symbols[written] = joined;
                read += 2;
                times += 1;
            }
            written += 1;
        }
        corpus.list[place as usize] = written as u32;
        times * count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    struct Stop;

    fn run(words: &[(&str, i64)], options: Options<'_>) -> Result<Trained, TrainError> {
        let mut trainer = Trainer::default();
        words.iter().try_for_each(|&(word, count)| trainer.add(word.as_bytes(), count))?;
        Ok(trainer.train(options, &mut || Ok::<_, Stop>(())).unwrap())
    }

    fn options(special_tokens: &[String]) -> Options<'_> {
        Options { vocab_size: 100, special_tokens, min_frequency: 2, full_alphabet: false }
    }

    #[test]
    fn ties_go_to_the_smallest_ids() {
        let trained = run(&[("cd", 2), ("ab", 2), ("aaaa", 1)], options(&[])).unwrap();
        assert_eq!(trained.vocab, ["a", "b", "c", "d", "aa", "ab", "cd"]);
        // (a, a) is counted three times in aaaa, windows overlapping, and replaced twice.
        assert_eq!(trained.merges, [(0, 0), (0, 1), (2, 3)]);
        assert_eq!(trained.replaced, [2, 2, 2]);
        assert!(!trained.i32_overflow);
    }

    #[test]
    fn what_was_replaced_is_what_the_text_became_shorter_by() {
        let words = [("abababab", 3), ("xabab", 5), ("aaaaaaa", 2), ("baabaab", 4), ("y", 9)];
        let trained = run(&words, Options { min_frequency: 1, ..options(&[]) }).unwrap();
        let bytes: i64 = words.iter().map(|(word, count)| word.len() as i64 * count).sum();
        // Nothing is left to merge: every word is one token.
        assert_eq!(bytes - trained.replaced.iter().sum::<i64>(), words.iter().map(|(_, count)| count).sum::<i64>());
        assert!(trained.replaced.iter().all(|&replaced| replaced > 0));
    }

    #[test]
    fn special_tokens_come_first_and_once_and_keep_their_ids() {
        let special = ["ab", "x", "ab", "b"].map(String::from);
        let trained = run(&[("abc", 3), ("ab", 1)], options(&special)).unwrap();
        // ids: ab 0, x 1, b 2, a 3, c 4.
        assert_eq!(trained.vocab, ["ab", "x", "b", "a", "c", "abc"]);
        assert_eq!(trained.merges, [(3, 2), (0, 4)]);
    }

    #[test]
    fn specials_and_alphabet_are_never_cut() {
        let special = ["<x>".to_owned()];
        let trained = run(&[("ab ab", 5)], Options { vocab_size: 0, ..options(&special) }).unwrap();
        assert_eq!((trained.vocab.len(), trained.merges.len()), (4, 0));
        let full = run(&[("ab", 5)], Options { vocab_size: 258, full_alphabet: true, ..options(&special) }).unwrap();
        assert_eq!((full.vocab.len(), full.merges.len()), (258, 1));
        assert_eq!(full.vocab[256..], ["Ń", "ab"]);
    }

    #[test]
    fn a_word_added_in_parts_is_one() {
        let whole = run(&[("abc", 5), ("bc", 4)], options(&[])).unwrap();
        assert_eq!(run(&[("abc", 2), ("bc", 4), ("abc", 3)], options(&[])).unwrap(), whole);
    }

    #[test]
    fn counts_past_32_bits_are_reported_and_past_63_refused() {
        let just = i64::from(i32::MAX);
        assert!(!run(&[("ab", just)], options(&[])).unwrap().i32_overflow);
        assert!(run(&[("ab", just), ("abc", 1)], options(&[])).unwrap().i32_overflow);
        assert_eq!(run(&[("abc", just * 1000)], options(&[])).unwrap().replaced, [just * 1000; 2]);
        assert_eq!(run(&[("ab", i64::MAX)], options(&[])), Err(TrainError::TooMuch));
        assert_eq!(run(&[("ab", 1), ("ab", 0)], options(&[])), Err(TrainError::Count { row: 1, count: 0 }));
    }

    #[test]
    fn poll_ends_the_training() {
        let mut trainer = Trainer::default();
        trainer.add(b"ab", 2).unwrap();
        assert_eq!(trainer.train(options(&[]), &mut || Err(Stop)), Err(Stop));
    }
}
