//! Text to ids.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::bpe::added::{Added, AddedError, AddedToken, Part};
use crate::bpe::alphabet::alphabet;
use crate::bpe::key::Key;
use crate::bpe::merges::{MOST_MERGES, Merges, NONE};
use crate::bpe::nfc::normalize;
use crate::bpe::scan::{Marked, Visit, scan};
use crate::bpe::split::Pattern;
use crate::simd::{Level, Work, run};

pub use crate::bpe::cache::Cache;

/// A byte-level BPE vocabulary with its merges. It never changes, and threads can share it, each with its own [`Cache`].
pub struct Encoder {
    vocab: FxHashMap<String, u32>,
    merges: Merges,
    pattern: Pattern,
    normalize: bool,
    added: Added,
    level: Level,
}

/// How tokenizers differ apart from vocabulary and merges; the default is what train_tokenizer makes.
pub struct Options {
    /// How a text is split.
    pub pattern: Pattern,
    /// Whether a text is brought into NFC first.
    pub normalize: bool,
    /// Whether a piece that is a token is not merged.
    pub ignore_merges: bool,
    /// Found before the split.
    pub added: Vec<AddedToken>,
}

impl Default for Options {
    fn default() -> Self {
        Self { pattern: Pattern::default(), normalize: true, ignore_merges: false, added: Vec::new() }
    }
}

/// Why a vocabulary and its merges do not make an encoder.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum VocabError {
    /// The same token twice.
    #[error("token {0:?} is in the vocabulary twice; expected each token once")]
    TokenTwice(String),
    /// Two tokens with one id.
    #[error("two tokens have the id {0}; expected one token for each id")]
    IdTwice(u32),
    /// An id that is reserved for "no symbol".
    #[error("token id {0} is too large; expected at most {most}", most = NONE - 1)]
    IdTooLarge(u32),
    /// A merge, by rank, of or into something that is not a token.
    #[error(
        "merges[{rank}] needs the token {token:?}, which the vocabulary lacks; expected both sides of a merge and what \
         they make to be tokens"
    )]
    NoToken {
        /// The place in the list of merges, from 0.
        rank: usize,
        /// The missing token.
        token: String,
    },
    /// More merges than can be.
    #[error("got {0} merges; expected at most {MOST_MERGES}")]
    TooManyMerges(usize),
    /// The added tokens do not go with it.
    #[error(transparent)]
    Added(#[from] AddedError),
}

impl Encoder {
    /// `vocab` holds (token, id), the tokens written in byte symbols; `merges` holds (left, right) by rank.
    ///
    /// # Errors
    /// A token or id given twice, or a merge of or into something that is not a token.
    pub fn new(vocab: Vec<(String, u32)>, merges: &[(String, String)]) -> Result<Self, VocabError> {
        let mut ids = FxHashMap::default();
        for (token, id) in vocab {
            if ids.contains_key(&token) {
                return Err(VocabError::TokenTwice(token));
            }
            ids.insert(token, id);
        }
        Self::with_options(ids, merges, &Options::default())
    }

    /// As `new`, of another configuration.
    ///
    /// # Errors
    /// As `new`; or added tokens that cannot be found as the reference finds them.
    pub fn with_options(
        vocab: FxHashMap<String, u32>,
        merges: &[(impl AsRef<str>, impl AsRef<str>)],
        options: &Options,
    ) -> Result<Self, VocabError> {
        let mut taken = FxHashSet::default();
        for &id in vocab.values() {
            if id == NONE {
                return Err(VocabError::IdTooLarge(id));
            }
            if !taken.insert(id) {
                return Err(VocabError::IdTwice(id));
            }
        }
        let mut triples = Vec::with_capacity(merges.len());
        let mut both = String::new();
        for (rank, (left, right)) in merges.iter().enumerate() {
            let find = |token: &str| {
                vocab.get(token).copied().ok_or_else(|| VocabError::NoToken { rank, token: token.to_owned() })
            };
            both.clear();
            both.push_str(left.as_ref());
            both.push_str(right.as_ref());
            triples.push((find(left.as_ref())?, find(right.as_ref())?, find(&both)?));
        }
        if triples.len() > MOST_MERGES {
            return Err(VocabError::TooManyMerges(triples.len()));
        }
        let alphabet = alphabet();
        let symbols = alphabet.map(|symbol| vocab.get(symbol.encode_utf8(&mut [0; 4])).copied().unwrap_or(NONE));
        let mut made = Merges::new(symbols, &triples);
        if options.ignore_merges {
            made.ignore_for(whole_pieces(&alphabet, &vocab));
        }
        Ok(Self {
            merges: made,
            pattern: options.pattern,
            normalize: options.normalize,
            added: Added::new(&options.added, &vocab, options.normalize)?,
            level: Level::best(),
            vocab,
        })
    }

    /// The same encoder at another level of [`Level::available`]. The ids are the same.
    pub fn at_level(self, level: Level) -> Self {
        Self { level, ..self }
    }

    /// How many tokens there are, added ones included.
    pub fn vocab_size(&self) -> usize {
        self.vocab.len() + self.added.new_tokens()
    }

    /// The id of a token, in byte symbols or, of an added one, as it is.
    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.added.id(token).or_else(|| self.vocab.get(token).copied())
    }

    /// Append the ids of `text`, one whole document, to `ids`.
    ///
    /// Returns how many bytes (of the text as it is split) have no symbol in the vocabulary. They vanish, as in the
    /// reference, and the symbols around them may merge. Special tokens in the text are plain text.
    pub fn encode(&self, text: &str, cache: &mut Cache, ids: &mut Vec<u32>) -> u64 {
        let mut dropped = 0;
        self.added.split(text, self.normalize, &mut |part| {
            dropped += match part {
                Part::Token(id) => {
                    ids.push(id);
                    0
                }
                Part::Text(text) => self.read(text, false, cache, ids).unwrap_or_default(),
                Part::Raw(text) => self.normalized(text, cache, ids),
            }
        });
        dropped
    }

    fn normalized(&self, text: &str, cache: &mut Cache, ids: &mut Vec<u32>) -> u64 {
        let start = ids.len();
        self.read(text, true, cache, ids).unwrap_or_else(|Marked| {
            // Nearly every text is in NFC already; this one may not be.
            ids.truncate(start);
            self.read(&normalize(text), false, cache, ids).unwrap_or_default()
        })
    }

    fn read(&self, text: &str, stop_at_marks: bool, cache: &mut Cache, ids: &mut Vec<u32>) -> Result<u64, Marked> {
        // A function for each pattern: a look at the pattern in every block would take a tenth of the time.
        match self.pattern {
            Pattern::Qwen2 => self.read_by(|| Pattern::Qwen2, text, stop_at_marks, cache, ids),
            Pattern::Llama3 => self.read_by(|| Pattern::Llama3, text, stop_at_marks, cache, ids),
            Pattern::Gpt2 => self.read_by(|| Pattern::Gpt2, text, stop_at_marks, cache, ids),
        }
    }

    fn read_by(
        &self,
        pattern: impl Fn() -> Pattern,
        text: &str,
        stop_at_marks: bool,
        cache: &mut Cache,
        ids: &mut Vec<u32>,
    ) -> Result<u64, Marked> {
        run(self.level, Read { merges: &self.merges, pattern, text, stop_at_marks, cache, ids, dropped: 0 })
    }
}

/// The tokens that are pieces, by the bytes that the alphabet writes so.
fn whole_pieces(alphabet: &[char; 256], vocab: &FxHashMap<String, u32>) -> FxHashMap<Box<[u8]>, u32> {
    let bytes: FxHashMap<char, u8> = alphabet.iter().copied().zip(0..=u8::MAX).collect();
    let piece = |token: &str| token.chars().map(|symbol| bytes.get(&symbol).copied()).collect::<Option<_>>();
    vocab.iter().filter_map(|(token, &id)| Some((piece(token)?, id))).collect()
}

/// The encoding of one text; gives the number of bytes without a symbol.
struct Read<'a, P> {
    merges: &'a Merges,
    pattern: P,
    text: &'a str,
    stop_at_marks: bool,
    cache: &'a mut Cache,
    ids: &'a mut Vec<u32>,
    dropped: u64,
}

impl<P: Fn() -> Pattern> Work for Read<'_, P> {
    type Output = Result<u64, Marked>;

    #[inline(always)]
    fn run(mut self) -> Self::Output {
        let (text, stop_at_marks, pattern) = (self.text, self.stop_at_marks, (self.pattern)());
        let result = scan(text, pattern, stop_at_marks, &mut self);
        match result {
            Ok(()) => self.answer(),
            Err(Marked) => self.cache.forget_wanted(),
        }
        result.map(|()| self.dropped)
    }
}

impl<P> Read<'_, P> {
    #[inline(always)]
    fn answer(&mut self) {
        self.dropped += self.cache.answer(self.text.as_bytes(), self.merges, self.ids);
    }
}

impl<P> Visit for Read<'_, P> {
    #[inline(always)]
    fn piece(&mut self, start: usize, end: usize, key: Key) {
        if self.cache.want(start, end, key) {
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
    fn a_piece_that_is_a_token_is_not_merged_where_merges_are_ignored() {
        let vocab: FxHashMap<String, u32> = vocab(&["a", "b", "ab", "Ġ", "Ġab", "zb"]).into_iter().collect();
        let ids = |ignore_merges| {
            let options = Options { ignore_merges, ..Options::default() };
            let encoder = Encoder::with_options(vocab.clone(), &merges(&[("a", "b")]), &options).unwrap();
            let mut ids = Vec::new();
            let dropped = encoder.encode("zb ab abb", &mut Cache::default(), &mut ids);
            (dropped, ids)
        };
        assert_eq!(ids(false), (1, vec![1, 3, 2, 3, 2, 1]));
        assert_eq!(ids(true), (0, vec![5, 4, 3, 2, 1]));
    }

    #[test]
    fn an_added_token_ends_the_text_before_it() {
        let vocab: FxHashMap<String, u32> = vocab(&["a", "Ġ", "ĠĠ", "aĠ"]).into_iter().collect();
        let added: Vec<AddedToken> = serde_json::from_str(
            r#"[{"content": "<t>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
                "special": false}]"#,
        )
        .unwrap();
        let options = Options { added, ..Options::default() };
        let encoder = Encoder::with_options(vocab, &merges(&[("Ġ", "Ġ")]), &options).unwrap();
        let mut ids = Vec::new();
        encoder.encode("a  a  <t>a", &mut Cache::default(), &mut ids);
        assert_eq!(ids, [0, 1, 1, 0, 2, 4, 0]);
        assert_eq!(
            (encoder.vocab_size(), encoder.token_to_id("<t>"), encoder.token_to_id("aĠ")),
            (5, Some(4), Some(3))
        );
    }

    #[test]
    fn ids_have_32_bits() {
        let vocab = [("a", NONE - 1), ("b", 1 << 31), ("ab", NONE - 2)].map(|(token, id)| (token.to_owned(), id));
        let encoder = Encoder::new(vocab.into(), &merges(&[("a", "b")])).unwrap();
        let mut ids = Vec::new();
        encoder.encode("abba", &mut Cache::default(), &mut ids);
        assert_eq!(ids, [NONE - 2, 1 << 31, NONE - 1]);
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
