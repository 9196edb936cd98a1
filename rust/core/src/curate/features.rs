//! Hashed word features: of a text in lower case the words and the runs of other marks, alone and as n-grams.
//!
//! Words are `\w+` and marks `[^\w\s]+` of Python's `re`, lower case is that of `str.lower`, both by [`UNICODE`].

use std::sync::LazyLock;

use regex_syntax::hir::{Class as Ranges, HirKind};
use rustc_hash::FxHashMap;
use sha2::{Digest, Sha256};
use xxhash_rust::xxh3::xxh3_64;

pub use super::text::UNICODE;

/// General categories L and N, and the underscore.
const WORD: u8 = 1;
/// White space as `\s` has it.
const SPACE: u8 = 1 << 1;
/// It has another character in lower case.
const LOWERS: u8 = 1 << 2;
const CASED: u8 = 1 << 3;
const CASE_IGNORABLE: u8 = 1 << 4;
/// General categories L and M: a vowel sign of Hindi is as much of a letter as a vowel of English.
const LETTER: u8 = 1 << 5;
const ASSIGNED: u8 = 1 << 6;

const SCALARS: usize = 0x11_0000;
const SPACES: &str = r"[\t-\r\x1C-\x20\u{85}\u{A0}\u{1680}\u{2000}-\u{200A}\u{2028}\u{2029}\u{202F}\u{205F}\u{3000}]";

struct Characters {
    bits: Vec<u8>,
    lower: FxHashMap<char, char>,
}

static CHARACTERS: LazyLock<Characters> = LazyLock::new(Characters::build);

impl Characters {
    fn build() -> Self {
        let mut bits = vec![0; SCALARS];
        let classes = [
            (r"[\p{L}\p{N}_]", WORD),
            (SPACES, SPACE),
            (r"\p{Cased}", CASED),
            (r"\p{Case_Ignorable}", CASE_IGNORABLE),
            (r"[\p{L}\p{M}]", LETTER),
            (r"\P{Cn}", ASSIGNED),
        ];
        for (pattern, bit) in classes {
            let Ok(HirKind::Class(Ranges::Unicode(ranges))) = regex_syntax::parse(pattern).map(|hir| hir.into_kind())
            else {
                unreachable!("{pattern} is a class of characters")
            };
            for range in ranges.iter() {
                for cell in &mut bits[range.start() as usize..=range.end() as usize] {
                    *cell |= bit;
                }
            }
        }
        // The compiler's Unicode is newer. A mapping that it has more leads from or to a character that was not assigned.
        let known = |character: char, bits: &[u8]| bits[character as usize] & ASSIGNED != 0;
        let mut lower = FxHashMap::default();
        for character in '\u{80}'..=char::MAX {
            let mut mapped = character.to_lowercase();
            if let (Some(to), None) = (mapped.next(), mapped.next())
                && to != character
                && known(character, &bits)
                && known(to, &bits)
            {
                lower.insert(character, to);
                bits[character as usize] |= LOWERS;
            }
        }
        for character in ['\u{130}', 'Σ'] {
            bits[character as usize] |= LOWERS;
        }
        Self { bits, lower }
    }

    #[inline]
    fn of(&self, character: char) -> u8 {
        self.bits[character as usize]
    }

    fn cased_next(&self, characters: impl Iterator<Item = char>) -> bool {
        let mut rest = characters.skip_while(|&one| self.of(one) & CASE_IGNORABLE != 0);
        rest.next().is_some_and(|one| self.of(one) & CASED != 0)
    }

    /// Append the text in lower case, as `str.lower` of Python gives it.
    fn lower_into(&self, text: &str, lower: &mut String) {
        lower.reserve(text.len());
        for (place, character) in text.char_indices() {
            if character.is_ascii() {
                lower.push(character.to_ascii_lowercase());
            } else if self.of(character) & LOWERS == 0 {
                lower.push(character);
            } else if character == 'Σ' {
                let before = self.cased_next(text[..place].chars().rev());
                let ends = before && !self.cased_next(text[place + character.len_utf8()..].chars());
                lower.push(if ends { 'ς' } else { 'σ' });
            } else if character == '\u{130}' {
                lower.push_str("i\u{307}");
            } else {
                lower.push(self.lower.get(&character).copied().unwrap_or(character));
            }
        }
    }
}

/// How many letters (with the marks on them) a text has, and how many characters that are not white space.
pub fn letters(text: &str) -> (usize, usize) {
    let characters = &*CHARACTERS;
    text.chars().fold((0, 0), |(letters, visible), character| {
        let bits = characters.of(character);
        (letters + usize::from(bits & LETTER != 0), visible + usize::from(bits & SPACE == 0))
    })
}

/// What each byte of ASCII is: WORD, SPACE, or 0 for a mark; 0x80 and on are not ASCII.
const ASCII_KIND: [u8; 256] = {
    let mut kinds = [0; 256];
    let mut byte = 0;
    while byte < 128 {
        let character = byte as u8;
        if character.is_ascii_alphanumeric() || character == b'_' {
            kinds[byte] = WORD;
        } else if matches!(character, b'\t'..=b'\r' | 0x1C..=b' ') {
            kinds[byte] = SPACE;
        }
        byte += 1;
    }
    kinds
};

/// The terms of one text after another, in buffers that stay.
#[derive(Debug)]
pub struct Terms {
    ngrams: usize,
    lower: String,
    /// The tokens with one blank between them, so that an n-gram is a part of it.
    joined: Vec<u8>,
    /// Where in `joined` each token starts and ends.
    tokens: Vec<(usize, usize)>,
}

impl Terms {
    /// No terms; those of texts to come are tokens and n-grams up to `ngrams` tokens.
    pub fn new(ngrams: usize) -> Self {
        Self { ngrams, lower: String::new(), joined: vec![], tokens: vec![] }
    }

    /// Take the terms of `text`; those of the text before are gone.
    pub fn read(&mut self, text: &str) {
        self.tokens.clear();
        if text.is_ascii() {
            self.read_ascii(text.as_bytes());
            return;
        }
        let characters = &*CHARACTERS;
        self.lower.clear();
        self.joined.clear();
        characters.lower_into(text, &mut self.lower);
        let mut kind = SPACE;
        let mut start = 0;
        for (place, character) in self.lower.char_indices() {
            let now = characters.of(character) & (WORD | SPACE);
            if now != kind {
                if kind != SPACE {
                    push(&mut self.joined, &mut self.tokens, &self.lower.as_bytes()[start..place]);
                }
                (kind, start) = (now, place);
            }
        }
        if kind != SPACE {
            push(&mut self.joined, &mut self.tokens, &self.lower.as_bytes()[start..]);
        }
    }

    /// The same of ASCII, of which no character is looked up: three times as fast.
    fn read_ascii(&mut self, text: &[u8]) {
        // At worst every byte is a token of its own, with a blank after it.
        self.joined.resize(2 * text.len(), 0);
        let (mut kind, mut start, mut end) = (SPACE, 0, 0);
        for &byte in text {
            let now = ASCII_KIND[usize::from(byte)];
            if now != kind {
                if kind != SPACE {
                    self.tokens.push((start, end));
                }
                if now != SPACE && end > 0 {
                    self.joined[end] = b' ';
                    end += 1;
                }
                (kind, start) = (now, end);
            }
            if now != SPACE {
                self.joined[end] = byte.to_ascii_lowercase();
                end += 1;
            }
        }
        if kind != SPACE {
            self.tokens.push((start, end));
        }
        self.joined.truncate(end);
    }

    /// All as UTF-8, in the order of their first tokens.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.tokens.iter().enumerate().flat_map(move |(first, &(start, _))| {
            let last = self.tokens.len().min(first + self.ngrams);
            self.tokens[first..last].iter().map(move |&(_, end)| &self.joined[start..end])
        })
    }
}

fn push(joined: &mut Vec<u8>, tokens: &mut Vec<(usize, usize)>, token: &[u8]) {
    if !joined.is_empty() {
        joined.push(b' ');
    }
    let start = joined.len();
    joined.extend_from_slice(token);
    tokens.push((start, joined.len()));
}

/// What a term's bucket follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// xxh3 of 64 bits, seed 0.
    Xxh3,
    /// The digest as one number, its first byte the highest: what data-selection takes.
    Sha256,
}

impl Hash {
    /// The bucket of a term.
    #[inline]
    pub fn bucket(self, term: &[u8], buckets: u32) -> u32 {
        let buckets = u64::from(buckets);
        match self {
            Self::Xxh3 => (xxh3_64(term) % buckets) as u32,
            Self::Sha256 => {
                let rest = |rest: u64, word: &[u8; 4]| (rest << 32 | u64::from(u32::from_be_bytes(*word))) % buckets;
                Sha256::digest(term).as_chunks().0.iter().fold(0, rest) as u32
            }
        }
    }
}

/// How often each bucket occurs in rows: row i has `indices[indptr[i]..indptr[i + 1]]`, ascending, with their counts.
#[derive(Debug)]
pub struct Counts {
    /// One more than there are rows.
    pub indptr: Vec<i64>,
    /// Buckets.
    pub indices: Vec<u32>,
    /// Of the bucket at the same place; at least 1.
    pub counts: Vec<u32>,
}

impl Default for Counts {
    fn default() -> Self {
        Self { indptr: vec![0], indices: vec![], counts: vec![] }
    }
}

impl Counts {
    /// Append a row with these buckets, which are sorted here.
    pub fn push(&mut self, found: &mut [u32]) {
        found.sort_unstable();
        for same in found.chunk_by(|left, right| left == right) {
            self.indices.push(same[0]);
            self.counts.push(same.len() as u32);
        }
        self.indptr.push(self.indices.len() as i64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(text: &str, ngrams: usize) -> Vec<String> {
        let mut terms = Terms::new(ngrams);
        terms.read("the text before");
        terms.read(text);
        terms.iter().map(|term| String::from_utf8_lossy(term).into_owned()).collect()
    }

    #[test]
    fn ascii_has_the_terms_that_it_has_beside_other_text() {
        let every: String = (0..128).map(char::from).collect();
        for text in [every.as_str(), "", " ", "a", " a,B  c.. d_1\tE", "a,b,c,d,", "\x1c\x1fx\0y"] {
            let mut plain = terms(text, 2);
            let mut beside = terms(&format!("{text} \u{e9}"), 2);
            // The last token is the one that is not ASCII: it is in the last n-grams.
            beside.retain(|term| !term.contains('\u{e9}'));
            plain.sort_unstable();
            beside.sort_unstable();
            assert_eq!(plain, beside, "{text:?}");
        }
    }

    #[test]
    fn terms_are_tokens_and_ngrams() {
        assert_eq!(terms("The quick-brown", 2), ["the", "the quick", "quick", "quick -", "-", "- brown", "brown"]);
        assert_eq!(terms("a b c", 3), ["a", "a b", "a b c", "b", "b c", "c"]);
        assert_eq!(terms("A_b ć 3.5%", 1), ["a_b", "ć", "3", ".", "5", "%"]);
        assert!(terms(" \u{2028}\n", 2).is_empty());
    }

    #[test]
    fn lower_case_is_pythons() {
        let lower = |text: &str| {
            let mut lower = String::new();
            CHARACTERS.lower_into(text, &mut lower);
            lower
        };
        assert_eq!(lower("ΟΔΥΣΣΕΥΣ ΣΑΣ. Σ"), "οδυσσευς σας. σ");
        assert_eq!(lower("İI"), "i\u{307}i");
        for character in '\0'..=char::MAX {
            let text = format!("A{character}Σ.");
            // The compiler knows newer characters, and that U+0295 has no case.
            let known = |one: char| CHARACTERS.of(one) & ASSIGNED != 0 && one != '\u{295}';
            if known(character) && character.to_lowercase().all(known) {
                assert_eq!(lower(&text), text.to_lowercase(), "U+{:04X}", character as u32);
            }
        }
    }

    #[test]
    fn all_data_are_of_one_version() {
        let count = |bit: u8| CHARACTERS.bits.iter().filter(|&&bits| bits & bit != 0).count();
        assert_eq!(UNICODE, "16.0.0");
        // Unicode 16 has 141,028 letters and 1,911 numbers.
        assert_eq!(count(WORD), 141_028 + 1_911 + 1);
        assert_eq!(count(SPACE), 29);
    }

    #[test]
    fn a_digest_is_one_number() {
        // ba7816bf 8f01cfea 414140de 5dae2223 b00361a3 96177a9c b410ff61 f20015ad
        assert_eq!(Hash::Sha256.bucket(b"abc", 1 << 16), 0x15ad);
        assert_eq!(Hash::Sha256.bucket(b"abc", 1 << 31), 0x7200_15ad);
        let words = [0xba7816bfu64, 0x8f01cfea, 0x414140de, 0x5dae2223, 0xb00361a3, 0x96177a9c, 0xb410ff61, 0xf20015ad];
        let expected = words.iter().fold(0, |rest, word| ((rest << 32) + word) % 10_007);
        assert_eq!(u64::from(Hash::Sha256.bucket(b"abc", 10_007)), expected);
    }

    #[test]
    fn counts_are_sorted_by_bucket() {
        let mut counts = Counts::default();
        counts.push(&mut [7, 3, 7]);
        counts.push(&mut []);
        assert_eq!((counts.indptr, counts.indices, counts.counts), (vec![0, 2, 2], vec![3, 7], vec![1, 2]));
    }

    #[test]
    fn marks_count_as_letters() {
        assert_eq!(letters("हिन्दी 12"), (6, 8));
        assert_eq!(letters("a b\u{a0}+"), (2, 3));
    }
}
