//! Hashed word features: of a text in lower case the words and the runs of other marks, alone and as n-grams.
//!
//! Words are `\w+` and marks `[^\w\s]+` of Python's `re`, lower case is that of `str.lower`, both by [`UNICODE`].

use std::sync::LazyLock;

use regex_syntax::hir::{Class as Ranges, HirKind};
use rustc_hash::FxHashMap;
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

/// The terms of one text after another, in buffers that stay.
#[derive(Debug)]
pub struct Terms {
    ngrams: usize,
    lower: String,
    /// The tokens with one blank between them, so that an n-gram is a part of it.
    joined: String,
    /// Where in `joined` each token starts and ends.
    tokens: Vec<(usize, usize)>,
}

impl Terms {
    /// No terms; those of texts to come are tokens and n-grams up to `ngrams` tokens.
    pub fn new(ngrams: usize) -> Self {
        Self { ngrams, lower: String::new(), joined: String::new(), tokens: vec![] }
    }

    /// Take the terms of `text`; those of the text before are gone.
    pub fn read(&mut self, text: &str) {
        let characters = &*CHARACTERS;
        self.lower.clear();
        self.joined.clear();
        self.tokens.clear();
        characters.lower_into(text, &mut self.lower);
        let mut kind = SPACE;
        let mut start = 0;
        for (place, character) in self.lower.char_indices() {
            let now = characters.of(character) & (WORD | SPACE);
            if now != kind {
                if kind != SPACE {
                    push(&mut self.joined, &mut self.tokens, &self.lower[start..place]);
                }
                (kind, start) = (now, place);
            }
        }
        if kind != SPACE {
            push(&mut self.joined, &mut self.tokens, &self.lower[start..]);
        }
    }

    /// All, in the order of their first tokens.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.tokens.iter().enumerate().flat_map(move |(first, &(start, _))| {
            let last = self.tokens.len().min(first + self.ngrams);
            self.tokens[first..last].iter().map(move |&(_, end)| &self.joined[start..end])
        })
    }
}

fn push(joined: &mut String, tokens: &mut Vec<(usize, usize)>, token: &str) {
    if !joined.is_empty() {
        joined.push(' ');
    }
    let start = joined.len();
    joined.push_str(token);
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
    pub fn bucket(self, term: &str, buckets: u32) -> u32 {
        let buckets = u64::from(buckets);
        match self {
            Self::Xxh3 => (xxh3_64(term.as_bytes()) % buckets) as u32,
            Self::Sha256 => {
                let rest = |rest: u64, &word: &u32| (rest << 32 | u64::from(word)) % buckets;
                sha256(term.as_bytes()).iter().fold(0, rest) as u32
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

const ROUND: [u32; 64] = [
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98,
    0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
    0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8,
    0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
    0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819,
    0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
    0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
    0xc67178f2,
];

/// SHA-256 (FIPS 180-4) as eight words.
fn sha256(data: &[u8]) -> [u32; 8] {
    let mut state: [u32; 8] =
        [0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19];
    let mut padded = data.to_vec();
    padded.push(0x80);
    padded.resize((padded.len() + 8).next_multiple_of(64) - 8, 0);
    padded.extend((8 * data.len() as u64).to_be_bytes());
    for block in padded.chunks_exact(64) {
        let mut words = [0u32; 64];
        for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
            *word = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        for at in 16..64 {
            let (first, second) = (words[at - 15], words[at - 2]);
            let low = first.rotate_right(7) ^ first.rotate_right(18) ^ (first >> 3);
            let high = second.rotate_right(17) ^ second.rotate_right(19) ^ (second >> 10);
            words[at] = words[at - 16].wrapping_add(low).wrapping_add(words[at - 7]).wrapping_add(high);
        }
        let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = state;
        for (constant, word) in ROUND.iter().zip(words) {
            let choice = (e & f) ^ (!e & g);
            let mixed = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
            let one = h.wrapping_add(mixed).wrapping_add(choice).wrapping_add(*constant).wrapping_add(word);
            let majority = (a & b) ^ (a & c) ^ (b & c);
            let two = (a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22)).wrapping_add(majority);
            (h, g, f, e, d, c, b, a) = (g, f, e, d.wrapping_add(one), c, b, a, one.wrapping_add(two));
        }
        for (word, more) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
            *word = word.wrapping_add(more);
        }
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(text: &str, ngrams: usize) -> Vec<String> {
        let mut terms = Terms::new(ngrams);
        terms.read("the text before");
        terms.read(text);
        terms.iter().map(str::to_owned).collect()
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
    fn sha256_is_the_standard_s() {
        assert_eq!(sha256(b"")[..2], [0xe3b0c442, 0x98fc1c14]);
        assert_eq!(sha256(b"abc")[..2], [0xba7816bf, 0x8f01cfea]);
        assert_eq!(sha256(b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")[..2], [0x248d6a61, 0xd20638b8]);
        assert_eq!(sha256(&[b'a'; 55])[..2], [0x9f4390f8, 0xd30c2dd9]);
        assert_eq!(sha256(&[b'a'; 64])[..2], [0xffe054fe, 0x7ae0cb6d]);
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
