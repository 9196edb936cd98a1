//! How often each piece occurs in the documents a tokenizer is trained on.

use std::fmt;

use rustc_hash::FxHashMap;

use crate::nfc::normalize;
use crate::split::pieces;

/// A count that is not positive, or a sum past 2^63 − 1.
#[derive(Debug, PartialEq, Eq)]
pub struct CountError {
    /// The count added.
    pub count: i64,
}

impl fmt::Display for CountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "got the count {}; expected at least 1, and a sum for each word below 2^63", self.count)
    }
}

impl std::error::Error for CountError {}

/// The first `most` Unicode scalar values of `text`.
pub fn truncate(text: &str, most: usize) -> &str {
    if text.len() <= most {
        return text;
    }
    text.char_indices().nth(most).map_or(text, |(end, _)| &text[..end])
}

/// Counts of distinct pieces, in bytes of NFC text. Special tokens in a text are plain text.
#[derive(Default)]
pub struct WordCounter {
    counts: FxHashMap<Box<[u8]>, i64>,
}

impl WordCounter {
    /// Count the pieces of one document, all of it.
    ///
    /// # Errors
    /// A sum past 2^63 − 1.
    pub fn add(&mut self, document: &str) -> Result<(), CountError> {
        let document = normalize(document);
        pieces(&document).try_for_each(|piece| self.add_word(piece.as_bytes(), 1))
    }

    /// Add `count` to the count of `word`.
    ///
    /// # Errors
    /// A count below 1, or a sum past 2^63 − 1.
    pub fn add_word(&mut self, word: &[u8], count: i64) -> Result<(), CountError> {
        if count < 1 {
            return Err(CountError { count });
        }
        match self.counts.get_mut(word) {
            Some(sum) => *sum = sum.checked_add(count).ok_or(CountError { count })?,
            None => {
                self.counts.insert(word.into(), count);
            }
        }
        Ok(())
    }

    /// How many words differ.
    pub fn len(&self) -> usize {
        self.counts.len()
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// The words with their counts, sorted by bytes.
    pub fn words(&self) -> Vec<(&[u8], i64)> {
        let mut words: Vec<(&[u8], i64)> = self.counts.iter().map(|(word, &count)| (&**word, count)).collect();
        words.sort_unstable();
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_sorted_and_in_nfc() {
        let mut counter = WordCounter::default();
        counter.add("b e\u{301} b").unwrap();
        counter.add(" b").unwrap();
        counter.add("").unwrap();
        assert_eq!(counter.words(), [(&b" b"[..], 2), (" é".as_bytes(), 1), (b"b", 1)]);
    }

    #[test]
    fn counts_neither_wrap_nor_shrink() {
        let mut counter = WordCounter::default();
        counter.add_word(b"a", i64::MAX).unwrap();
        assert_eq!(counter.add_word(b"a", 1), Err(CountError { count: 1 }));
        assert_eq!(counter.add_word(b"b", 0), Err(CountError { count: 0 }));
        assert_eq!(counter.words(), [(&b"a"[..], i64::MAX)]);
    }

    #[test]
    fn truncation_counts_scalar_values() {
        assert_eq!(truncate("aé€😀b", 4), "aé€😀");
        assert_eq!(truncate("é", 1), "é");
        assert_eq!(truncate("é", 0), "");
        assert_eq!(truncate("", 0), "");
    }
}
