//! Merges from counted words, as the trainer of `tokenizers` 0.22.2 finds them.
//!
//! Take the pair of highest count, at equal counts that of the smallest (left id, right id); join it everywhere, left
//! to right; until the vocabulary is full, no pair is left, or the best count is below the minimum. Each pair enters
//! the queue once, so nothing depends on the order of the words.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;

use rustc_hash::FxHashMap;

use crate::bytes::alphabet;

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
    /// Whether a pair occurred more than 2^31 − 1 times. The reference counts in 32 bits and would have lost it.
    pub i32_overflow: bool,
}

/// Why words cannot be trained on.
#[derive(Debug, PartialEq, Eq)]
pub enum TrainError {
    /// A count below 1.
    Count {
        /// The place of the word, from 0.
        row: usize,
        /// Its count.
        count: i64,
    },
    /// Counts times lengths sum to more than 2^63 − 1, or there are more than 2^32 − 1 words.
    TooMuch,
}

impl fmt::Display for TrainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count { row, count } => write!(f, "row {row} has the count {count}; expected at least 1"),
            Self::TooMuch => f.write_str("too much to train on; expected fewer than 2^63 bytes and 2^32 words"),
        }
    }
}

impl std::error::Error for TrainError {}

/// Tokens by id and ids by token.
#[derive(Default)]
struct Vocab {
    tokens: Vec<String>,
    ids: FxHashMap<String, u32>,
}

impl Vocab {
    /// The id of `token`, a new one if it has none.
    fn id_of(&mut self, token: String) -> u32 {
        if let Some(&id) = self.ids.get(&token) {
            return id;
        }
        let id = self.tokens.len() as u32;
        self.tokens.push(token.clone());
        self.ids.insert(token, id);
        id
    }
}

/// A word of two symbols or more: its place in the common list of symbols.
struct Word {
    start: usize,
    length: usize,
    count: i64,
}

struct Pair {
    ids: (u32, u32),
    count: i64,
    /// The words that have, or had, the pair.
    words: Vec<u32>,
}

/// All pairs met so far.
#[derive(Default)]
struct Pairs {
    places: FxHashMap<(u32, u32), u32>,
    pairs: Vec<Pair>,
}

impl Pairs {
    /// Count `ids` `count` times more, in `word`; returns the place of the pair.
    #[inline]
    fn add(&mut self, ids: (u32, u32), count: i64, word: u32) -> u32 {
        let place = *self.places.entry(ids).or_insert_with(|| {
            self.pairs.push(Pair { ids, count: 0, words: Vec::new() });
            (self.pairs.len() - 1) as u32
        });
        let pair = &mut self.pairs[place as usize];
        pair.count += count;
        if pair.words.last() != Some(&word) {
            pair.words.push(word);
        }
        place
    }

    #[inline]
    fn subtract(&mut self, ids: (u32, u32), count: i64) {
        if let Some(&place) = self.places.get(&ids) {
            self.pairs[place as usize].count -= count;
        }
    }
}

/// Train on `words` with their counts. `poll` is called every few milliseconds; what it fails with ends the training.
///
/// # Errors
/// Those of [`TrainError`], and those of `poll`.
pub fn train<'a, E: From<TrainError>>(
    words: impl Iterator<Item = (&'a [u8], i64)> + Clone,
    options: Options<'_>,
    poll: &mut dyn FnMut() -> Result<(), E>,
) -> Result<Trained, E> {
    let seen = check(words.clone())?;
    let mut vocab = Vocab::default();
    for token in options.special_tokens {
        vocab.id_of(token.clone());
    }
    let bytes_by_symbol: BTreeMap<char, usize> = alphabet().into_iter().zip(0..).collect();
    let mut byte_ids = [0; 256];
    for (symbol, byte) in bytes_by_symbol {
        if seen[byte] || options.full_alphabet {
            byte_ids[byte] = vocab.id_of(symbol.to_string());
        }
    }

    let mut state = State::new(words, &byte_ids, poll)?;
    let mut merges = Vec::new();
    while vocab.tokens.len() < options.vocab_size {
        let Some((place, count)) = state.best() else { break };
        if count < 1 || (count as u64) < options.min_frequency {
            break;
        }
        let (left, right) = state.pairs.pairs[place as usize].ids;
        // A string that is a token already, a special one, keeps its id.
        let joined = vocab.id_of(format!("{}{}", vocab.tokens[left as usize], vocab.tokens[right as usize]));
        merges.push((left, right));
        state.join(place, joined, poll)?;
        poll()?;
    }
    Ok(Trained { vocab: vocab.tokens, merges, i32_overflow: state.i32_overflow })
}

/// Refuse counts that could overflow; return which bytes occur.
fn check<'a>(words: impl Iterator<Item = (&'a [u8], i64)>) -> Result<[bool; 256], TrainError> {
    let mut seen = [false; 256];
    let mut total = 0_i64;
    for (row, (word, count)) in words.enumerate() {
        if count < 1 {
            return Err(TrainError::Count { row, count });
        }
        if row == u32::MAX as usize {
            return Err(TrainError::TooMuch);
        }
        // No pair can occur more often than there are bytes.
        let bytes = i64::try_from(word.len()).ok().and_then(|length| count.checked_mul(length));
        total = bytes.and_then(|bytes| total.checked_add(bytes)).ok_or(TrainError::TooMuch)?;
        for &byte in word {
            seen[usize::from(byte)] = true;
        }
    }
    Ok(seen)
}

/// (count when entered, pair, its place); counts are brought up to date when an entry reaches the top.
type Candidate = (i64, Reverse<(u32, u32)>, u32);

struct State {
    symbols: Vec<u32>,
    words: Vec<Word>,
    pairs: Pairs,
    queue: BinaryHeap<Candidate>,
    i32_overflow: bool,
    fresh: Vec<u32>,
}

impl State {
    fn new<'a, E>(
        words: impl Iterator<Item = (&'a [u8], i64)>,
        byte_ids: &[u32; 256],
        poll: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<Self, E> {
        let mut state = Self {
            symbols: Vec::new(),
            words: Vec::new(),
            pairs: Pairs::default(),
            queue: BinaryHeap::new(),
            i32_overflow: false,
            fresh: Vec::new(),
        };
        for (word, count) in words.filter(|(word, _)| word.len() > 1) {
            let start = state.symbols.len();
            state.symbols.extend(word.iter().map(|&byte| byte_ids[usize::from(byte)]));
            let index = state.words.len();
            for pair in state.symbols[start..].windows(2) {
                state.pairs.add((pair[0], pair[1]), count, index as u32);
            }
            state.words.push(Word { start, length: word.len(), count });
            if index.is_multiple_of(WORDS_BETWEEN_POLLS) {
                poll()?;
            }
        }
        state.fresh.extend(0..state.pairs.pairs.len() as u32);
        state.enter_fresh();
        Ok(state)
    }

    /// Take the pair to merge next, with its count.
    fn best(&mut self) -> Option<(u32, i64)> {
        loop {
            let (entered, ids, place) = self.queue.pop()?;
            let count = self.pairs.pairs[place as usize].count;
            if count == entered {
                return Some((place, count));
            }
            self.queue.push((count, ids, place));
        }
    }

    fn enter_fresh(&mut self) {
        for place in self.fresh.drain(..) {
            let pair = &self.pairs.pairs[place as usize];
            if pair.count > 0 {
                self.i32_overflow |= pair.count > i64::from(i32::MAX);
                self.queue.push((pair.count, Reverse(pair.ids), place));
            }
        }
    }

    /// Replace the pair at `place` by `joined` in every word that has it.
    fn join<E>(&mut self, place: u32, joined: u32, poll: &mut dyn FnMut() -> Result<(), E>) -> Result<(), E> {
        let pair = &mut self.pairs.pairs[place as usize];
        let (left, right) = pair.ids;
        for (done, index) in (1_usize..).zip(std::mem::take(&mut pair.words)) {
            self.join_in_word(index, left, right, joined);
            if done.is_multiple_of(WORDS_BETWEEN_POLLS) {
                poll()?;
            }
        }
        self.fresh.sort_unstable();
        self.fresh.dedup();
        self.enter_fresh();
        Ok(())
    }

    fn join_in_word(&mut self, index: u32, left: u32, right: u32, joined: u32) {
        let word = &mut self.words[index as usize];
        let symbols = &mut self.symbols[word.start..word.start + word.length];
        let mut read = 0;
        let mut written = 0;
        while read < symbols.len() {
            if symbols[read] != left || symbols.get(read + 1) != Some(&right) {
                symbols[written] = symbols[read];
                read += 1;
            } else {
                if written > 0 {
                    let before = symbols[written - 1];
                    self.pairs.subtract((before, left), word.count);
                    self.fresh.push(self.pairs.add((before, joined), word.count, index));
                }
                if let Some(&after) = symbols.get(read + 2) {
                    self.pairs.subtract((right, after), word.count);
                    self.fresh.push(self.pairs.add((joined, after), word.count, index));
                }
                symbols[written] = joined;
                read += 2;
            }
            written += 1;
        }
        word.length = written;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(words: &[(&str, i64)], options: Options<'_>) -> Result<Trained, TrainError> {
        train(words.iter().map(|&(word, count)| (word.as_bytes(), count)), options, &mut || Ok(()))
    }

    fn options(special_tokens: &[String]) -> Options<'_> {
        Options { vocab_size: 100, special_tokens, min_frequency: 2, full_alphabet: false }
    }

    #[test]
    fn ties_go_to_the_smallest_ids() {
        let trained = run(&[("cd", 2), ("ab", 2), ("aaaa", 1)], options(&[])).unwrap();
        assert_eq!(trained.vocab, ["a", "b", "c", "d", "aa", "ab", "cd"]);
        // (a, a) is counted three times in aaaa, windows overlapping.
        assert_eq!(trained.merges, [(0, 0), (0, 1), (2, 3)]);
        assert!(!trained.i32_overflow);
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
    fn counts_past_32_bits_are_reported_and_past_63_refused() {
        let just = i64::from(i32::MAX);
        assert!(!run(&[("ab", just)], options(&[])).unwrap().i32_overflow);
        assert!(run(&[("ab", just), ("abc", 1)], options(&[])).unwrap().i32_overflow);
        assert_eq!(run(&[("ab", i64::MAX)], options(&[])), Err(TrainError::TooMuch));
        assert_eq!(run(&[("ab", 1), ("ab", 0)], options(&[])), Err(TrainError::Count { row: 1, count: 0 }));
    }

    #[test]
    fn poll_ends_the_training() {
        #[derive(Debug, PartialEq)]
        struct Stop;
        impl From<TrainError> for Stop {
            fn from(_: TrainError) -> Self {
                Self
            }
        }
        let trained = train([(&b"ab"[..], 2)].into_iter(), options(&[]), &mut || Err(Stop));
        assert_eq!(trained, Err(Stop));
    }
}
