//! Text to ids.

use std::fmt;

use rustc_hash::FxHashMap;

use crate::bpe::Merges;
use crate::bytes::alphabet;
use crate::cache::Found;
use crate::nfc::normalize;
use crate::split::pieces;

pub use crate::cache::Cache;

/// A byte without a symbol in the vocabulary; no token has this id.
const NO_SYMBOL: u32 = u32::MAX;

/// A byte-level BPE vocabulary with its merges. It never changes and can serve many threads, each with a [`Cache`].
pub struct Encoder {
    symbols: [u32; 256],
    merges: Merges,
    vocab_size: usize,
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
            Self::IdTooLarge(id) => write!(f, "token id {id} is too large; expected at most {}", NO_SYMBOL - 1),
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
            if id == NO_SYMBOL {
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
        let symbols = alphabet().map(|symbol| ids.get(symbol.encode_utf8(&mut [0; 4])).copied().unwrap_or(NO_SYMBOL));
        Ok(Self { symbols, merges: Merges::new(triples.into_iter()), vocab_size })
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
        let text = normalize(text);
        let bytes = text.as_bytes();
        let mut dropped = 0;
        let mut start = 0;
        for piece in pieces(&text) {
            let piece = piece.as_bytes();
            dropped += match cache.find(piece, bytes[start..].first_chunk(), ids) {
                Found::Hit(dropped) => dropped,
                Found::Never => self.encode_piece(piece, cache, ids),
                Found::Miss(place) => {
                    let before = ids.len();
                    let dropped = self.encode_piece(piece, cache, ids);
                    cache.store(place, piece, &ids[before..], dropped);
                    dropped
                }
            };
            start += piece.len();
        }
        dropped
    }

    fn encode_piece(&self, piece: &[u8], cache: &mut Cache, ids: &mut Vec<u32>) -> u64 {
        let start = ids.len();
        ids.extend(piece.iter().map(|&byte| self.symbols[usize::from(byte)]).filter(|&id| id != NO_SYMBOL));
        let dropped = piece.len() - (ids.len() - start);
        self.merges.apply(ids, start, &mut cache.scratch);
        dropped as u64
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
