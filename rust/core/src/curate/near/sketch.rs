//! A row as near deduplication needs it: hashes of its tokens and numbers, and letters where typing errors may count.
//!
//! Bytes, all numbers little-endian: `VERSION`, kind, two zeros; u32 tokens of the instruction, of the response, and
//! bytes of the words; u64 hashes of the numbers of both fields, and of the light forms of both (0 where there are
//! tokens); u32 hashes of the tokens of the instruction, of the response; the words.

use thiserror::Error;

use super::grams::{Hashes, hash, mix};
use super::{Fields, NumberGuard, Settings};
use crate::curate::characters::{Characters, LETTER};
use crate::curate::text::{Numbers, Tokens, light, token_hash};

const VERSION: u8 = 1;
const HEADER: usize = 48;
/// Characters from which on a word can have a typing error.
const MISSPELT: usize = 6;

/// What a row is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Other pairs.
    Pair,
    /// Other documents: its instruction is empty.
    Document,
}

/// Bytes that are not a sketch.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("not a valid sketch: {0}")]
pub struct Malformed(&'static str);

/// A sketch in its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Sketch<'a> {
    /// What it is compared with.
    pub kind: Kind,
    pub(crate) instruction: Field<'a>,
    pub(crate) response: Field<'a>,
    /// The words of the field that carries the proof, one a line; others than those that can be misspelt are empty.
    words: &'a str,
}

/// One field of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field<'a> {
    pub(crate) numbers: u64,
    pub(crate) light: u64,
    pub(crate) tokens: Hashes<'a>,
}

impl Field<'_> {
    /// Whether the tokens are equal; without any, whether the light forms are.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        self.tokens.bytes() == other.tokens.bytes() && self.light == other.light
    }

    /// Whether there is no text to compare.
    pub(crate) fn is_blank(&self) -> bool {
        self.tokens.is_empty() && self.light == EMPTY
    }

    /// A hash of what `equals` compares.
    pub(crate) fn identity(&self) -> u64 {
        mix(hash(self.tokens.bytes()), self.light)
    }
}

impl<'a> Sketch<'a> {
    /// Read a sketch.
    ///
    /// # Errors
    /// These bytes are not one.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (header, rest) = bytes.split_first_chunk::<HEADER>().ok_or(Malformed("fewer bytes than a header"))?;
        let [version, kind, ..] = *header;
        if version != VERSION {
            return Err(Malformed("an unknown version"));
        }
        let kind = match kind {
            0 => Kind::Pair,
            1 => Kind::Document,
            _ => return Err(Malformed("an unknown kind of row")),
        };
        let (lengths, hashes) = header.split_at(16);
        let [_, instruction, response, words] =
            numbers_of::<4, 4>(lengths).map(|bytes| u32::from_le_bytes(bytes) as usize);
        let [numbers_i, numbers_r, light_i, light_r] = numbers_of::<4, 8>(hashes).map(u64::from_le_bytes);
        let other_length = Malformed("another length than its header says");
        let (instruction, rest) = rest.split_at_checked(instruction * 4).ok_or(other_length)?;
        let (response, rest) = rest.split_at_checked(response * 4).ok_or(other_length)?;
        if rest.len() != words {
            return Err(other_length);
        }
        Ok(Self {
            kind,
            instruction: Field { numbers: numbers_i, light: light_i, tokens: Hashes::new(instruction) },
            response: Field { numbers: numbers_r, light: light_r, tokens: Hashes::new(response) },
            words: std::str::from_utf8(rest).map_err(|_| Malformed("words that are not UTF-8"))?,
        })
    }

    /// The words of the field that carries the proof, as many as its tokens, or none.
    pub(crate) fn words(&self) -> Vec<&'a str> {
        if self.words.is_empty() { Vec::new() } else { self.words.split('\n').collect() }
    }
}

/// `N` numbers of `W` bytes; missing ones are zeros.
fn numbers_of<const N: usize, const W: usize>(bytes: &[u8]) -> [[u8; W]; N] {
    let chunks = bytes.as_chunks::<W>().0;
    std::array::from_fn(|place| chunks.get(place).copied().unwrap_or([0; W]))
}

/// Makes sketches; its buffers are used again.
#[derive(Default)]
pub struct Maker {
    instruction: Tokens,
    response: Tokens,
    numbers: Numbers,
    words: Vec<u8>,
}

impl Maker {
    /// Append the sketch of a row.
    pub fn push(&mut self, instruction: &str, response: &str, settings: &Settings, out: &mut Vec<u8>) {
        let [with_instruction, with_response] =
            [Fields::Response, Fields::Instruction].map(|other| settings.fields != other);
        self.instruction.read(if with_instruction { instruction } else { "" });
        self.response.read(if with_response { response } else { "" });
        let light_i = if with_instruction { light_hash(&self.instruction, instruction) } else { 0 };
        let light_r = if with_response { light_hash(&self.response, response) } else { 0 };
        let document = light_i == EMPTY;

        self.words.clear();
        match settings.fields {
            Fields::Pair if self.response.len() < settings.min_response => {
                keep_words(&self.instruction, &mut self.words)
            }
            Fields::Instruction if may_be_weak(&self.instruction, settings) => {
                keep_words(&self.instruction, &mut self.words);
            }
            Fields::Response if may_be_weak(&self.response, settings) => keep_words(&self.response, &mut self.words),
            _ => {}
        }
        // A guard compares the numbers of pairs alone.
        let guarded = settings.fields == Fields::Pair && !document;
        let mut numbers = |text, wanted| if wanted { numbers_hash(&mut self.numbers, text) } else { 0 };
        let numbers_i = numbers(instruction, guarded && settings.number_guard != NumberGuard::Off);
        let numbers_r = numbers(response, guarded && settings.number_guard == NumberGuard::Both);

        out.reserve(HEADER + 4 * (self.instruction.len() + self.response.len()) + self.words.len());
        out.extend_from_slice(&[VERSION, u8::from(document), 0, 0]);
        // Texts of 2^32 tokens do not fit into a batch of rows.
        for length in [self.instruction.len(), self.response.len(), self.words.len()] {
            out.extend_from_slice(&(length as u32).to_le_bytes());
        }
        for hash in [numbers_i, numbers_r, light_i, light_r] {
            out.extend_from_slice(&hash.to_le_bytes());
        }
        for token in self.instruction.iter().chain(self.response.iter()) {
            out.extend_from_slice(&token_hash(token).to_le_bytes());
        }
        out.extend_from_slice(&self.words);
    }

    /// The number of tokens of the last response.
    pub fn response_tokens(&self) -> usize {
        self.response.len()
    }
}

fn keep_words(tokens: &Tokens, words: &mut Vec<u8>) {
    for (place, token) in tokens.iter().enumerate() {
        if place > 0 {
            words.push(b'\n');
        }
        if may_be_misspelt(token) {
            words.extend_from_slice(token.as_bytes());
        }
    }
}

/// The light hash of an empty text.
const EMPTY: u64 = 1;

/// The hash of the light form of a text without tokens; 0 if it has some.
fn light_hash(tokens: &Tokens, text: &str) -> u64 {
    if !tokens.is_empty() {
        return 0;
    }
    let light = light(text);
    if light.is_empty() { EMPTY } else { hash(light.as_bytes()) }
}

/// Whether a field that is compared alone can meet one of fewer than `min_response` tokens.
fn may_be_weak(tokens: &Tokens, settings: &Settings) -> bool {
    tokens.len() * 7 <= settings.min_response * 10
}

/// Whether a typing error in this token is looked for: it is alphabetic and has at least six characters.
fn may_be_misspelt(token: &str) -> bool {
    if token.is_ascii() {
        return token.len() >= MISSPELT && token.bytes().all(|byte| byte.is_ascii_alphabetic());
    }
    let characters = Characters::get();
    token.chars().count() >= MISSPELT && token.chars().all(|character| characters.of(character) & LETTER != 0)
}

/// A hash of the multiset of a text's numbers; 0 for none.
fn numbers_hash(numbers: &mut Numbers, text: &str) -> u64 {
    if !text.bytes().any(|byte| byte.is_ascii_digit() || byte >= 0x80) {
        return 0;
    }
    numbers.read(text);
    numbers.iter().fold(0, |sum, number| mix(sum, hash(number.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sketch_reads_back_and_any_cut_of_it_is_an_error() {
        let settings = Settings::default();
        let mut bytes = Vec::new();
        let mut maker = Maker::default();
        maker.push("Which lettres are 3 vowels?", "a, e", &settings, &mut bytes);
        assert_eq!(maker.response_tokens(), 2);
        let sketch = Sketch::read(&bytes).unwrap();
        assert_eq!(sketch.kind, Kind::Pair);
        assert_eq!((sketch.instruction.tokens.len(), sketch.response.tokens.len()), (5, 2));
        assert_eq!(sketch.instruction.tokens.at(3), token_hash("3"));
        assert_eq!(sketch.words(), ["", "lettres", "", "", "vowels"]);
        assert_ne!((sketch.instruction.numbers, sketch.response.numbers), (0, sketch.instruction.numbers));
        for end in 0..bytes.len() {
            assert!(Sketch::read(&bytes[..end]).is_err(), "{end}");
        }
        let mut larger = bytes.clone();
        larger.push(0);
        assert!(Sketch::read(&larger).is_err());
        for (place, value) in [(0, 9), (1, 2), (7, 0xFF), (15, 0xFF), (bytes.len() - 1, 0xFF)] {
            let mut other = bytes.clone();
            other[place] = value;
            assert!(Sketch::read(&other).is_err(), "{place}");
        }
    }
}
