//! Text to ids.

use std::fmt;

use rustc_hash::FxHashMap;

use crate::bpe::{Merges, NONE};
use crate::bytes::alphabet;
use crate::key::Key;
use crate::nfc::normalize;
use crate::scan::{Marked, Visit, scan};
use crate::simd::{Level, Simd, Work, run};

pub use crate::cache::Cache;

/// A byte-level BPE vocabulary with its merges. It never changes and can serve many threads, each with a [`Cache`].
pub struct Encoder {
    merges: Merges,
    vocab_size: usize,
    level: Level,
}

/// Why a vocabulary and its merges do not make an encoder.
#[derive(Debug, PartialEq, Eq)]
pub enum VocabError {
    /// The same token twice.
    TokenTwice(String),
    /// Two tokens with one id.
    IdTwice(u32),
    /// An id that is kept for "no symbol".
    IdTooLarge(u32),
    /// A merge, by rank, of or into something that is no token.
    NoToken {
        /// The place in the list of merges, from 0.
        rank: usize,
        /// The missing token.
        token: String,
    },
}

impl fmt::Display for VocabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TokenTwice(token) => {
                write!(f, "token {token:?} is in the vocabulary twice; expected each token once")
            }
            Self::IdTwice(id) => write!(f, "two tokens have the id {id}; expected one token for each id"),
            Self::IdTooLarge(id) => write!(f, "token id {id} is too large; expected at most {}", NONE - 1),
            Self::NoToken { rank, token } => {
                write!(
                    f,
                    "merges[{rank}] needs the token {token:?}, which the vocabulary lacks; expected both sides of a merge and what they make to be tokens"
                )
            }
        }
    }
}

impl std::error::Error for VocabError {}

impl Encoder {
    /// `vocab` holds (token, id), the tokens written in byte symbols; `merges` holds (left, right) by rank.
    ///
    /// # Errors
    /// A token or id given twice, or a merge of or into something that is no token.
    pub fn new(vocab: Vec<(String, u32)>, merges: &[(String, String)]) -> Result<Self, VocabError> {
        let vocab_size = vocab.len();
        let mut ids: FxHashMap<String, u32> = FxHashMap::default();
        let mut taken: FxHashMap<u32, ()> = FxHashMap::default();
        for (token, id) in vocab {
            if id == NONE {
                return Err(VocabError::IdTooLarge(id));
            }
            if taken.insert(id, ()).is_some() {
                return Err(VocabError::IdTwice(id));
            }
            if ids.contains_key(&token) {
                return Err(VocabError::TokenTwice(token));
            }
            ids.insert(token, id);
        }
        let mut triples = Vec::with_capacity(merges.len());
        for (rank, (left, right)) in merges.iter().enumerate() {
            let find = |token: &str| {
                ids.get(token).copied().ok_or_else(|| VocabError::NoToken { rank, token: token.to_owned() })
            };
            triples.push((find(left)?, find(right)?, find(&format!("{left}{right}"))?));
        }
        let symbols = alphabet().map(|symbol| ids.get(symbol.encode_utf8(&mut [0; 4])).copied().unwrap_or(NONE));
        Ok(Self { merges: Merges::new(symbols, &triples), vocab_size, level: Level::best() })
    }

    /// The same at another level, of those that [`Level::available`] tells. The ids are the same.
    pub fn at_level(self, level: Level) -> Self {
        Self { level, ..self }
    }

    /// How many tokens the vocabulary has.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// Append the ids of `text`, one whole document, to `ids`.
    ///
    /// Returns how many bytes (of the text in NFC) have no symbol in the vocabulary. They vanish, as in the reference,
    /// and the symbols around them may merge. Special tokens in the text are plain text.
    pub fn encode(&self, text: &str, cache: &mut Cache, ids: &mut Vec<u32>) -> u64 {
        let start = ids.len();
        self.read(text, true, cache, ids).unwrap_or_else(|Marked| {
            // Nearly every text is in NFC already; whether this one is needs a closer look.
            ids.truncate(start);
            self.read(&normalize(text), false, cache, ids).unwrap_or_default()
        })
    }

    fn read(&self, text: &str, stop_at_marks: bool, cache: &mut Cache, ids: &mut Vec<u32>) -> Result<u64, Marked> {
        run(self.level, Read { merges: &self.merges, text, stop_at_marks, cache, ids })
    }
}

/// The encoding of one text; gives the number of bytes without a symbol.
struct Read<'a> {
    merges: &'a Merges,
    text: &'a str,
    stop_at_marks: bool,
    cache: &'a mut Cache,
    ids: &'a mut Vec<u32>,
}

impl Work for Read<'_> {
    type Output = Result<u64, Marked>;

    #[inline(always)]
    fn run(self, simd: impl Simd) -> Self::Output {
        let Self { text, stop_at_marks, .. } = self;
        let mut reader = Reader { simd, read: self, dropped: 0 };
        let result = scan(simd, text, stop_at_marks, &mut reader);
        if result.is_err() {
            reader.read.cache.forget_wanted();
        }
        reader.answer();
        result.map(|()| reader.dropped)
    }
}

struct Reader<'a, S> {
    simd: S,
    read: Read<'a>,
    dropped: u64,
}

impl<S: Simd> Reader<'_, S> {
    #[inline(always)]
    fn answer(&mut self) {
        let Read { merges, text, cache, ids, .. } = &mut self.read;
        self.dropped += cache.answer(text.as_bytes(), merges, ids);
    }
}

impl<S: Simd> Visit for Reader<'_, S> {
    #[inline(always)]
    fn piece(&mut self, start: usize, end: usize, key: Key) {
        if self.read.cache.want(self.simd, start, end, key) {
            self.answer();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vocab(tokens: &[&str]) -> Vec<(String, u32)> {
        tokens.iter().map(|&token| token.to_owned()).zip(0..).collect()
    }

    fn merges(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|&(left, right)| (left.to_owned(), right.to_owned())).collect()
    }

    #[test]
    fn bytes_without_a_symbol_vanish_and_are_counted() {
        let encoder = Encoder::new(vocab(&["a", "b", "ab", "Ġ"]), &merges(&[("a", "b")])).unwrap();
        let mut cache = Cache::default();
        for _ in 0..2 {
            let mut ids = Vec::new();
            // The z is dropped, and a and b merge across the gap.
            assert_eq!(encoder.encode("azb ab\u{4}", &mut cache, &mut ids), 2);
            assert_eq!(ids, [2, 3, 2]);
        }
        assert_eq!(encoder.encode("", &mut cache, &mut Vec::new()), 0);
    }

    #[test]
    fn long_words_are_not_quadratic() {
        let encoder = Encoder::new(vocab(&["a", "aa", "aaaa"]), &merges(&[("a", "a"), ("aa", "aa")])).unwrap();
        let mut ids = Vec::new();
        let dropped = encoder.encode(&"a".repeat(1_000_003), &mut Cache::default(), &mut ids);
        assert_eq!((dropped, ids.len()), (0, 250_002));
        assert_eq!(ids[249_999..], [2, 1, 0]);
    }

    #[test]
    fn a_vocabulary_that_contradicts_itself_is_refused() {
        let error = |tokens: Vec<(String, u32)>, pairs| Encoder::new(tokens, &merges(pairs)).err();
        assert_eq!(error(vocab(&["a", "a"]), &[]), Some(VocabError::TokenTwice("a".into())));
        assert_eq!(error(vec![("a".into(), 3), ("b".into(), 3)], &[]), Some(VocabError::IdTwice(3)));
        assert_eq!(error(vec![("a".into(), u32::MAX)], &[]), Some(VocabError::IdTooLarge(u32::MAX)));
        let missing = |token: &str| Some(VocabError::NoToken { rank: 1, token: token.into() });
        let tokens = || vocab(&["a", "b", "ab"]);
        assert_eq!(error(tokens(), &[("a", "b"), ("c", "b")]), missing("c"));
        assert_eq!(error(tokens(), &[("a", "b"), ("b", "a")]), missing("ba"));
    }
}
