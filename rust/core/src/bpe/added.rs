//! Added tokens: strings that have one id wherever they occur in a text. They are found before the text is split.
//!
//! They are found as by `tokenizers` 0.22.2 with `encode_special_tokens`: the leftmost first, and the longest of those. A
//! special token is found too, so that no other is found within it, but it remains text. Each text between added tokens
//! is normalised and split by itself.

use std::borrow::Cow;

use aho_corasick::{AhoCorasick, MatchKind};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Deserialize;

use crate::bpe::nfc::normalize;

/// An added token of a tokenizer.json. Its id there is ignored, as by the reference.
#[derive(Clone, Debug, Deserialize)]
pub struct AddedToken {
    /// What is found.
    pub content: String,
    /// Never between letters.
    pub single_word: bool,
    /// With the white space before it.
    pub lstrip: bool,
    /// With the white space after it.
    pub rstrip: bool,
    /// Found in the normalised text, and normalised itself.
    pub normalized: bool,
    /// Plain text here.
    pub special: bool,
}

/// Why added tokens cannot be found as the reference finds them.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddedError {
    /// The same content twice, of which the reference may keep both.
    #[error("added token {0:?} is given twice")]
    Twice(String),
    /// Two tokens of one id, of which the reference looks at one for both.
    #[error("two added tokens have the id {0}")]
    IdTwice(u32),
    /// What a word is to the reference is not frozen here.
    #[error("added token {0:?} is found as a single word only")]
    SingleWord(String),
    /// White space that one takes is the beginning of another, which the reference gives twice or fails on.
    #[error("added token {0:?} takes white space that another begins with")]
    Overlap(String),
    /// Too many, or too long.
    #[error("cannot build an automaton of the added tokens: {0}")]
    Automaton(String),
}

/// A part of a text.
pub(crate) enum Part<'a> {
    /// To be split; normalised if that was wanted.
    Text(&'a str),
    /// To be normalised and split.
    Raw(&'a str),
    /// An added token.
    Token(u32),
}

/// The added tokens of a vocabulary.
#[derive(Default)]
pub(crate) struct Added {
    ids: FxHashMap<String, u32>,
    /// How many of them the vocabulary lacks.
    new: usize,
    raw: Option<Finder>,
    normalized: Option<Finder>,
}

impl Added {
    /// A token has its id in `vocab`; those that `vocab` lacks have the next ids, in order.
    pub(crate) fn new(
        tokens: &[AddedToken],
        vocab: &FxHashMap<String, u32>,
        normalized: bool,
    ) -> Result<Self, AddedError> {
        let mut added = Self::default();
        let mut taken = FxHashSet::default();
        let (mut raw, mut late) = (Vec::new(), Vec::new());
        for token in tokens.iter().filter(|token| !token.content.is_empty()) {
            let id = vocab.get(&token.content).copied().unwrap_or_else(|| {
                added.new += 1;
                (vocab.len() + added.new - 1) as u32
            });
            if added.ids.insert(token.content.clone(), id).is_some() {
                return Err(AddedError::Twice(token.content.clone()));
            }
            if !taken.insert(id) {
                return Err(AddedError::IdTwice(id));
            }
            if token.single_word && !token.special {
                return Err(AddedError::SingleWord(token.content.clone()));
            }
            if token.normalized { &mut late } else { &mut raw }.push((token, id));
        }
        added.raw = Finder::new(&raw, false)?;
        added.normalized = Finder::new(&late, normalized)?;
        Ok(added)
    }

    pub(crate) fn id(&self, token: &str) -> Option<u32> {
        self.ids.get(token).copied()
    }

    pub(crate) fn new_tokens(&self) -> usize {
        self.new
    }

    /// Give the parts of `text`, in order, none of them empty; with `normalized` its texts are to be in NFC, to which they
    /// are brought here only where that is to be searched.
    #[inline]
    pub(crate) fn split(&self, text: &str, normalized: bool, give: &mut impl FnMut(Part<'_>)) {
        find(self.raw.as_ref(), text, &mut |part| match part {
            Part::Text(text) if normalized && self.normalized.is_none() => give(Part::Raw(text)),
            Part::Text(text) => {
                let text = if normalized { normalize(text) } else { Cow::Borrowed(text) };
                find(self.normalized.as_ref(), &text, give);
            }
            found => give(found),
        });
    }
}

#[inline]
fn find(finder: Option<&Finder>, text: &str, give: &mut impl FnMut(Part<'_>)) {
    match finder {
        Some(finder) => finder.split(text, give),
        None if text.is_empty() => {}
        None => give(Part::Text(text)),
    }
}

struct Finder {
    automaton: AhoCorasick,
    /// By pattern; `None` is special.
    tokens: Vec<Option<Found>>,
}

struct Found {
    id: u32,
    lstrip: bool,
    rstrip: bool,
}

impl Finder {
    /// `None` if nothing would ever be found.
    fn new(tokens: &[(&AddedToken, u32)], normalized: bool) -> Result<Option<Self>, AddedError> {
        if tokens.iter().all(|(token, _)| token.special) {
            return Ok(None);
        }
        let blank = |token: &AddedToken| !token.special && token.content.starts_with(char::is_whitespace);
        if tokens.iter().any(|(token, _)| blank(token))
            && let Some((token, _)) = tokens.iter().find(|(token, _)| token.rstrip && !token.special)
        {
            return Err(AddedError::Overlap(token.content.clone()));
        }
        // If NFC makes patterns equal, the first one counts; special ones come first.
        let (special, plain): (Vec<_>, Vec<_>) = tokens.iter().partition(|(token, _)| token.special);
        let ordered = || special.iter().chain(&plain);
        let patterns = ordered().map(|(token, _)| match normalized {
            true => normalize(&token.content),
            false => Cow::Borrowed(&token.content[..]),
        });
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(patterns.map(|pattern| pattern.into_owned()))
            .map_err(|error| AddedError::Automaton(error.to_string()))?;
        let found = |token: &AddedToken, id| Found { id, lstrip: token.lstrip, rstrip: token.rstrip };
        let tokens = ordered().map(|(token, id)| (!token.special).then(|| found(token, *id))).collect();
        Ok(Some(Self { automaton, tokens }))
    }

    fn split(&self, text: &str, give: &mut impl FnMut(Part<'_>)) {
        let mut done = 0;
        for hit in self.automaton.find_iter(text) {
            let Some(token) = &self.tokens[hit.pattern()] else { continue };
            let (mut start, mut end) = (hit.start(), hit.end());
            if token.lstrip {
                // Not before `done`: in a text of white space alone, every token would look at all of it.
                start = done + text[done..start].trim_end().len();
            }
            if token.rstrip {
                end = text.len() - text[end..].trim_start().len();
            }
            if done < start {
                give(Part::Text(&text[done..start]));
            }
            give(Part::Token(token.id));
            done = end;
        }
        if done < text.len() {
            give(Part::Text(&text[done..]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(content: &str, flags: &str) -> AddedToken {
        AddedToken {
            content: content.into(),
            single_word: flags.contains('w'),
            lstrip: flags.contains('l'),
            rstrip: flags.contains('r'),
            normalized: flags.contains('n'),
            special: flags.contains('s'),
        }
    }

    fn added(tokens: &[(&str, &str)]) -> Result<Added, AddedError> {
        let vocab = [("a".to_owned(), 0), ("<x>".to_owned(), 1)].into_iter().collect();
        let tokens: Vec<AddedToken> = tokens.iter().map(|(content, flags)| token(content, flags)).collect();
        Added::new(&tokens, &vocab, true)
    }

    #[track_caller]
    fn check(tokens: &[(&str, &str)], text: &str, expected: &[&str]) {
        let mut parts = Vec::new();
        added(tokens).unwrap().split(text, true, &mut |part| {
            parts.push(match part {
                Part::Raw(text) => normalize(text).into_owned(),
                Part::Text(text) => text.to_owned(),
                Part::Token(id) => format!("#{id}"),
            });
        });
        assert_eq!(parts, expected);
    }

    #[test]
    fn ids_are_those_of_the_vocabulary_or_follow_it() {
        let made = added(&[("new", ""), ("<x>", ""), ("", ""), ("newer", "s")]).unwrap();
        assert_eq!(
            ["new", "<x>", "newer", "", "a"].map(|token| made.id(token)),
            [Some(2), Some(1), Some(3), None, None]
        );
        assert_eq!(made.new_tokens(), 2);
    }

    #[test]
    fn the_longest_of_the_leftmost_is_found() {
        check(&[("ab", ""), ("abc", ""), ("bcd", "")], "abcd ab", &["#3", "d ", "#2"]);
        check(&[("ab", "")], "abab", &["#2", "#2"]);
        check(&[("ab", "")], "", &[]);
        check(&[], "ab", &["ab"]);
    }

    #[test]
    fn nothing_is_found_within_a_special_token() {
        check(&[("<b>", "s"), ("b", "")], "b<b>b<", &["#3", "<b>", "#3", "<"]);
        check(&[("<b>", "s")], "a<b>", &["a<b>"]);
    }

    #[test]
    fn white_space_goes_with_a_token_that_wants_it() {
        check(&[("t", "lr")], "a  t \n\u{3000}t\u{2003}b", &["a", "#2", "#2", "b"]);
        check(&[("t", "l")], "  t a", &["#2", " a"]);
        check(&[("t", "r"), ("u", "l")], "t  u", &["#2", "#3"]);
    }

    #[test]
    fn white_space_is_not_looked_at_by_every_token_after_it() {
        let (mut found, text) = (0, " ".repeat(2_000_001));
        added(&[("  ", "l")])
            .unwrap()
            .split(&text, true, &mut |part| found += usize::from(matches!(part, Part::Token(2))));
        assert_eq!(found, 1_000_000);
    }

    #[test]
    fn what_is_normalized_is_found_in_the_normalised_text() {
        check(&[("e\u{301}", "n")], "e\u{301}é", &["#2", "#2"]);
        check(&[("e\u{301}", "")], "e\u{301}é", &["#2", "é"]);
        check(&[("x", "")], "ex\u{301}", &["e", "#2", "\u{301}"]);
        check(&[("é", "n"), ("e\u{301}", "ns")], "é", &["é"]);
    }

    #[test]
    fn what_is_not_known_to_be_the_same_is_refused() {
        let error = |tokens| added(tokens).err();
        assert_eq!(error(&[("t", ""), ("t", "s")]), Some(AddedError::Twice("t".into())));
        assert_eq!(error(&[("t", "w")]), Some(AddedError::SingleWord("t".into())));
        assert_eq!(error(&[("t", "sw")]), None);
        assert_eq!(error(&[("t", "r"), (" ", "")]), Some(AddedError::Overlap("t".into())));
        let sparse = [("a".to_owned(), 0), ("<x>".to_owned(), 2)].into_iter().collect();
        let tokens = [token("<x>", ""), token("new", "")];
        assert_eq!(Added::new(&tokens, &sparse, true).err(), Some(AddedError::IdTwice(2)));
    }
}
