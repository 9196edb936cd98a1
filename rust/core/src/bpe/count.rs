//! How often each piece occurs in the documents a tokenizer is trained on.

use rustc_hash::FxHashMap;

use crate::bpe::key::{Key, SHORT};
use crate::bpe::nfc::normalize;
use crate::bpe::scan::{Visit, scan};
use crate::bpe::split::Pattern;
use crate::simd::{Level, Work, run};

const FIRST_SLOTS: usize = 1 << 12;

/// Why a word cannot be counted.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CountError {
    /// A count that is not positive, or a sum past 2^63 − 1.
    #[error("got the count {0}; expected at least 1, and a sum for each word below 2^63")]
    Count(i64),
    /// A word without bytes; no text has such a piece.
    #[error("got an empty word; expected at least one byte")]
    Empty,
}

/// The first `most` Unicode scalar values of `text`.
pub fn truncate(text: &str, most: usize) -> &str {
    if text.len() <= most {
        return text;
    }
    text.char_indices().nth(most).map_or(text, |(end, _)| &text[..end])
}

#[inline]
fn increase(sum: &mut i64, count: i64) -> Result<(), CountError> {
    *sum = sum.checked_add(count).ok_or(CountError::Count(count))?;
    Ok(())
}

#[derive(Clone, Copy)]
struct Slot {
    key: Key,
    count: i64,
}

const EMPTY: Slot = Slot { key: Key::NONE, count: 0 };

/// Counts by key: open addressing, at most half full.
struct Table {
    slots: Vec<Slot>,
    used: usize,
}

impl Default for Table {
    fn default() -> Self {
        Self { slots: vec![EMPTY; FIRST_SLOTS], used: 0 }
    }
}

impl Table {
    #[inline]
    fn add(&mut self, key: Key, count: i64) -> Result<(), CountError> {
        let mask = self.slots.len() - 1;
        let mut at = key.hash() & mask;
        loop {
            let slot = &mut self.slots[at];
            if slot.key == key {
                return increase(&mut slot.count, count);
            }
            if slot.key == Key::NONE {
                *slot = Slot { key, count };
                self.used += 1;
                if self.used > mask / 2 {
                    self.grow();
                }
                return Ok(());
            }
            at = (at + 1) & mask;
        }
    }

    #[cold]
    fn grow(&mut self) {
        let doubled = vec![EMPTY; self.slots.len() * 2];
        let mask = doubled.len() - 1;
        for slot in std::mem::replace(&mut self.slots, doubled) {
            if slot.key != Key::NONE {
                let mut at = slot.key.hash() & mask;
                while self.slots[at].key != Key::NONE {
                    at = (at + 1) & mask;
                }
                self.slots[at] = slot;
            }
        }
    }

    /// What was counted, sorted by bytes in place: a second list would take as much memory again.
    fn sorted(self) -> Vec<Slot> {
        let mut slots = self.slots;
        slots.retain(|slot| slot.key != Key::NONE);
        // A key read from its first byte is ordered as its piece is. If two pieces differ only in zeros at the end, the
        // length decides, which comes last.
        slots.sort_unstable_by_key(|slot| u128::from_be_bytes(slot.key.bytes().0));
        slots
    }
}

/// Distinct words with their counts, sorted by bytes, as Arrow has them.
#[derive(Debug)]
pub struct Words {
    /// The words one after another.
    pub bytes: Vec<u8>,
    /// Where each word begins in `bytes`, and where the last ends.
    pub offsets: Vec<i64>,
    /// The count of each word.
    pub counts: Vec<i64>,
}

impl Words {
    fn with_capacity(words: usize) -> Self {
        let mut offsets = Vec::with_capacity(words + 1);
        offsets.push(0);
        Self { bytes: Vec::new(), offsets, counts: Vec::with_capacity(words) }
    }

    fn push(&mut self, word: &[u8], count: i64) {
        self.bytes.extend_from_slice(word);
        self.offsets.push(self.bytes.len() as i64);
        self.counts.push(count);
    }

    /// The words in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.offsets.windows(2).map(|ends| &self.bytes[ends[0] as usize..ends[1] as usize])
    }
}

/// Counts of distinct pieces, in bytes of NFC text. Special tokens in a text are plain text.
#[derive(Default)]
pub struct WordCounter {
    short: Table,
    long: FxHashMap<Box<[u8]>, i64>,
    level: Level,
}

impl WordCounter {
    /// Count the pieces of one document, all of it.
    ///
    /// # Errors
    /// A sum past 2^63 − 1.
    pub fn add(&mut self, document: &str) -> Result<(), CountError> {
        let document = normalize(document);
        run(self.level, Read { text: &document, counter: self })
    }

    fn add_long(&mut self, word: &[u8], count: i64) -> Result<(), CountError> {
        match self.long.get_mut(word) {
            Some(sum) => increase(sum, count),
            None => {
                self.long.insert(word.into(), count);
                Ok(())
            }
        }
    }

    /// Add `count` to the count of `word`.
    ///
    /// # Errors
    /// An empty word, a count below 1, or a sum past 2^63 − 1.
    pub fn add_word(&mut self, word: &[u8], count: i64) -> Result<(), CountError> {
        if count < 1 {
            return Err(CountError::Count(count));
        }
        match word.len() {
            0 => Err(CountError::Empty),
            1..=SHORT => self.short.add(Key::of(word), count),
            _ => self.add_long(word, count),
        }
    }

    /// How many words differ.
    pub fn len(&self) -> usize {
        self.short.used + self.long.len()
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The words with their counts, sorted by bytes.
    pub fn words(self) -> Words {
        let mut words = Words::with_capacity(self.len());
        let mut long: Vec<_> = self.long.into_iter().collect();
        long.sort_unstable();
        let mut long = long.into_iter().peekable();
        for slot in self.short.sorted() {
            let (bytes, length) = slot.key.bytes();
            let short = &bytes[..length];
            while let Some((word, count)) = long.next_if(|(word, _)| **word < *short) {
                words.push(&word, count);
            }
            words.push(short, slot.count);
        }
        long.for_each(|(word, count)| words.push(&word, count));
        words
    }
}

/// The counting of one text.
struct Read<'a> {
    text: &'a str,
    counter: &'a mut WordCounter,
}

impl Work for Read<'_> {
    type Output = Result<(), CountError>;

    #[inline(always)]
    fn run(self) -> Self::Output {
        let Self { text, counter } = self;
        let mut reader = Reader { text: text.as_bytes(), counter, result: Ok(()) };
        // It is in NFC: the scanner does not stop at marks.
        let _ = scan(text, Pattern::Qwen2, false, &mut reader);
        reader.result
    }
}

struct Reader<'a> {
    text: &'a [u8],
    counter: &'a mut WordCounter,
    result: Result<(), CountError>,
}

impl Visit for Reader<'_> {
    #[inline(always)]
    fn piece(&mut self, start: usize, end: usize, key: Key) {
        let added = match key {
            Key::NONE => self.counter.add_long(&self.text[start..end], 1),
            key => self.counter.short.add(key, 1),
        };
        if added.is_err() {
            self.result = added;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpe::split::pieces;

    fn counted(counter: WordCounter) -> Vec<(Vec<u8>, i64)> {
        let words = counter.words();
        words.iter().map(<[u8]>::to_vec).zip(words.counts.iter().copied()).collect()
    }

    #[test]
    fn words_are_in_nfc_and_counted_to_the_end_of_a_document() {
        let mut counter = WordCounter::default();
        counter.add("b e\u{301} b").unwrap();
        counter.add(" b").unwrap();
        counter.add("").unwrap();
        assert_eq!(counted(counter), [(b" b".to_vec(), 2), (" é".into(), 1), (b"b".to_vec(), 1)]);
    }

    #[test]
    fn many_words_of_all_lengths_are_counted_as_a_map_does_and_sorted_by_bytes() {
        let mut counter = WordCounter::default();
        let mut expected = std::collections::BTreeMap::new();
        let mut text = String::new();
        for number in 0..40_000_u32 {
            let word = format!(" {}", "abc".repeat(1 + number as usize % 9) + &"\0x".repeat(number as usize % 3));
            let word = format!("{word}{}", number.wrapping_mul(0x9E37_79B1) >> (number % 25));
            text.push_str(&word);
            for piece in pieces(&word, Pattern::Qwen2) {
                *expected.entry(piece.as_bytes().to_vec()).or_insert(0) += 1;
            }
        }
        counter.add(&text).unwrap();
        for number in 0..10_000 {
            for word in [format!("{number}"), format!("a word of its own {number}"), "\0".repeat(1 + number % 40)] {
                counter.add_word(word.as_bytes(), 3).unwrap();
                *expected.entry(word.into()).or_insert(0) += 3;
            }
        }
        assert!(expected.len() > 3 * FIRST_SLOTS && expected.keys().any(|word| word.len() == SHORT));
        assert_eq!(counter.len(), expected.len());
        assert_eq!(counted(counter), expected.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn counts_neither_wrap_nor_shrink() {
        let mut counter = WordCounter::default();
        for word in ["a", "a word of its own"] {
            counter.add_word(word.as_bytes(), i64::MAX).unwrap();
            assert_eq!(counter.add_word(word.as_bytes(), 1), Err(CountError::Count(1)));
            assert_eq!(counter.add_word(word.as_bytes(), 0), Err(CountError::Count(0)));
        }
        assert_eq!(counter.add("a"), Err(CountError::Count(1)));
        assert_eq!(counter.add_word(b"", 1), Err(CountError::Empty));
        assert_eq!(counter.words().counts, [i64::MAX; 2]);
    }

    #[test]
    fn truncation_counts_scalar_values() {
        assert_eq!(truncate("aé€😀b", 4), "aé€😀");
        assert_eq!(truncate("é", 1), "é");
        assert_eq!(truncate("é", 0), "");
        assert_eq!(truncate("", 0), "");
    }
}
