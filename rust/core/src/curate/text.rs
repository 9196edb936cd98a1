//! Texts for comparison: the light form, tokens and numbers. None of them is written out.
//!
//! All forms begin with NFC, from which U+200B, U+FEFF and U+00AD are then deleted. A mark behind a deleted character is
//! not composed with the letter before it, so the light form of such a text may have another light form.

use std::borrow::Cow;

use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};
use xxhash_rust::xxh3::xxh3_64;

pub use super::characters::UNICODE;
use crate::simd::{BLOCK, Level, Work, block_at, next_set, run, spaces, tokens};

use super::characters::{Characters, DELETED, DIGIT, FOLDS, KIND, LETTER, MARK, SINGLE, SPACE, WORD};

/// The text in NFC, without U+200B, U+FEFF and U+00AD, with each run of white space as one blank, and trimmed.
///
/// White space is what `str.isspace` of Python takes for it. A text that is its own light form is borrowed.
pub fn light(text: &str) -> Cow<'_, str> {
    let mut buffers = Light::new();
    let light = buffers.of(text);
    if light == text { Cow::Borrowed(text) } else { Cow::Owned(light.to_owned()) }
}

/// The light form of one text after another, as [`light`] has it, in buffers that stay.
#[derive(Debug, Default)]
pub struct Light {
    composed: String,
    text: String,
    level: Level,
}

impl Light {
    /// No text yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The light form of `text`, which may be `text` itself.
    pub fn of<'a>(&'a mut self, text: &'a str) -> &'a str {
        let characters = Characters::get();
        let Self { composed, text: light, level } = self;
        let clean = cleaned(characters, text, composed);
        light.clear();
        let copied = run(*level, Spaces { characters, clean, light: &mut *light });
        let rest = without_blank(&clean[copied..]);
        if copied == 0 {
            return rest;
        }
        light.push_str(rest);
        light
    }
}

/// The text without a blank at its end.
#[inline(always)]
fn without_blank(text: &str) -> &str {
    // strip_suffix() calls memcmp for one byte.
    if text.as_bytes().last() == Some(&b' ') { &text[..text.len() - 1] } else { text }
}

/// Copies a text to where each run of white space is one blank, up to what follows the last run that is not; that place.
struct Spaces<'a> {
    characters: &'a Characters,
    clean: &'a str,
    light: &'a mut String,
}

impl Work for Spaces<'_> {
    type Output = usize;

    #[inline(always)]
    fn run(self) -> usize {
        let Self { characters, clean, light } = self;
        let mut stops = Stops::new(clean.as_bytes());
        let mut copied = 0;
        let mut at = 0;
        while let Some(stop) = stops.next(at) {
            at = stop;
            while let Some((cell, length)) = characters.at(clean, at)
                && cell & SPACE != 0
            {
                at += length;
            }
            if at == stop {
                at += char_at(clean, at).map_or(1, char::len_utf8);
                continue;
            }
            // No stop is at a blank alone, so one may be in front of this run.
            light.push_str(without_blank(&clean[copied..stop]));
            if !light.is_empty() && at < clean.len() {
                light.push(' ');
            }
            copied = at;
        }
        copied
    }
}

/// Where white space may be that is not one blank between others: at a blank behind a blank or at the beginning, at white
/// space that is not a blank, or at a character that begins with a byte that some such begin with.
struct Stops<'a> {
    bytes: &'a [u8],
    /// The first byte of the block.
    base: usize,
    /// The stops of the block that are left.
    left: u64,
}

impl<'a> Stops<'a> {
    #[inline(always)]
    fn new(bytes: &'a [u8]) -> Self {
        let mut stops = Self { bytes, base: 0, left: 0 };
        stops.look();
        stops
    }

    /// The first one from a boundary on, which is not before those that were asked for.
    #[inline(always)]
    fn next(&mut self, from: usize) -> Option<usize> {
        if from - self.base >= BLOCK {
            self.base = from - from % BLOCK;
            self.look();
        }
        self.left &= u64::MAX << (from - self.base);
        while self.left == 0 {
            self.base += BLOCK;
            if self.base >= self.bytes.len() {
                // The next call begins in this block, if at all.
                self.base -= BLOCK;
                return None;
            }
            self.look();
        }
        Some(self.base + self.left.trailing_zeros() as usize)
    }

    #[inline(always)]
    fn look(&mut self) {
        let (others, blanks) = spaces(&block_at(self.bytes, self.base));
        let before = self.base.checked_sub(1).is_none_or(|before| self.bytes[before] == b' ');
        self.left = others | blanks & (blanks << 1 | u64::from(before));
    }
}

/// The tokens of one text after another, in buffers that stay.
///
/// Of the text in NFC without U+200B, U+FEFF and U+00AD, in full case folding, with markup blanked out (at a line start
/// `#`×1–6, `>`, `-`, `*` or `+` with the space or tab behind it; anywhere `**`, `__` and backticks): each character of the
/// scripts Han, Hiragana, Katakana, Thai, Lao, Khmer and Myanmar; each run of other letters, marks and numbers; each
/// symbol, `%`, `/` and `*`; each `-` that is not between two letters.
#[derive(Debug, Default)]
pub struct Tokens {
    composed: String,
    /// Clean and folded.
    text: String,
    /// Start and end of each token in `text`.
    spans: Vec<(usize, usize)>,
    /// Bits of the bytes of `text`: where something begins that does not only separate, and what is in no run of ASCII.
    begins: Vec<u64>,
    ends: Vec<u64>,
    level: Level,
}

impl Tokens {
    /// No tokens.
    pub fn new() -> Self {
        Self::default()
    }

    /// Take the tokens of `text`; those of the text before are gone.
    pub fn read(&mut self, text: &str) {
        let characters = Characters::get();
        let Self { composed, text: folded, spans, begins, ends, level } = self;
        let clean = cleaned(characters, text, composed);
        fold(characters, clean, folded);
        spans.clear();
        begins.clear();
        ends.clear();
        run(*level, Cut { characters, text: folded, spans, begins, ends });
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The token at a place.
    ///
    /// # Panics
    /// There are not that many.
    #[inline]
    pub fn get(&self, place: usize) -> &str {
        let (start, end) = self.spans[place];
        &self.text[start..end]
    }

    /// All, from left to right.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        self.spans.iter().map(|&(start, end)| &self.text[start..end])
    }

    /// Append the hashes of all tokens, as [`token_hash`] has them.
    pub fn hashes_into(&self, hashes: &mut Vec<u32>) {
        let bytes = self.text.as_bytes();
        hashes.extend(self.spans.iter().map(|&(start, end)| xxh3_64(&bytes[start..end]) as u32));
    }
}

/// The low half of XXH3 (64 bits, seed 0).
#[inline]
pub fn token_hash(token: &str) -> u32 {
    xxh3_64(token.as_bytes()) as u32
}

/// All `Nd+([.,]Nd+)*` of the text in NFC without U+200B, U+FEFF and U+00AD, sorted by code points.
///
/// In those of 1 to 3 digits, groups of a comma and three digits, and at most one group of a point and digits, the commas
/// are left out. Signs are not part of them.
pub fn numbers(text: &str) -> Vec<String> {
    let mut numbers = Numbers::new();
    numbers.read(text);
    numbers.iter().map(str::to_owned).collect()
}

/// The numbers of one text after another, as [`numbers`] has them, in buffers that stay.
#[derive(Debug, Default)]
pub struct Numbers {
    composed: String,
    text: String,
    /// Start and end in `text`.
    spans: Vec<(usize, usize)>,
}

impl Numbers {
    /// No numbers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Take the numbers of `text`; those of the text before are gone.
    pub fn read(&mut self, text: &str) {
        let characters = Characters::get();
        let Self { composed, text: out, spans } = self;
        out.clear();
        spans.clear();
        let clean = cleaned(characters, text, composed);
        let bytes = clean.as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            // A byte within a character is behind one that was a digit or not.
            if !bytes[at].is_ascii_digit() && (bytes[at] < 0xC0 || digit_at(characters, clean, at).is_none()) {
                at += 1;
                continue;
            }
            let start = at;
            let plain = number_end(characters, clean, &mut at);
            let first = out.len();
            if plain {
                out.extend(clean[start..at].chars().filter(|&character| character != ','));
            } else {
                out.push_str(&clean[start..at]);
            }
            spans.push((first, out.len()));
        }
        spans.sort_unstable_by(|left, right| out[left.0..left.1].cmp(&out[right.0..right.1]));
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// All, sorted by code points.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        self.spans.iter().map(|&(start, end)| &self.text[start..end])
    }
}

/// The length of the decimal digit at a boundary, if one is there.
#[inline]
fn digit_at(characters: &Characters, text: &str, at: usize) -> Option<usize> {
    let &byte = text.as_bytes().get(at)?;
    if byte < 0x80 {
        return byte.is_ascii_digit().then_some(1);
    }
    characters.at(text, at).and_then(|(cell, length)| (cell & DIGIT != 0).then_some(length))
}

/// Move behind the number that begins at `at`. Whether its commas, if it has any, part thousands.
fn number_end(characters: &Characters, text: &str, at: &mut usize) -> bool {
    let bytes = text.as_bytes();
    let mut thousands = true;
    let mut groups = 0;
    let mut point = false;
    let mut separator = b',';
    loop {
        let mut digits = 0_usize;
        while let Some(length) = digit_at(characters, text, *at) {
            digits += 1;
            *at += length;
        }
        thousands &= match (groups, separator) {
            (0, _) => digits <= 3,
            (_, b',') => digits == 3 && !point,
            _ => !std::mem::replace(&mut point, true),
        };
        groups += 1;
        separator = match bytes.get(*at) {
            Some(&byte @ (b'.' | b',')) if digit_at(characters, text, *at + 1).is_some() => byte,
            _ => return thousands,
        };
        *at += 1;
    }
}

/// The character at a boundary; nothing at the end.
#[inline]
fn char_at(text: &str, at: usize) -> Option<char> {
    text[at..].chars().next()
}

/// Where the next character outside ASCII is, or the end.
#[inline]
fn next_high(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    for chunk in bytes[from..].as_chunks::<8>().0 {
        if !chunk.is_ascii() {
            break;
        }
        at += chunk.len();
    }
    while at < bytes.len() && bytes[at] < 0x80 {
        at += 1;
    }
    at
}

/// The text in NFC without what is deleted; `composed` holds it if it differs.
fn cleaned<'a>(characters: &Characters, text: &'a str, composed: &'a mut String) -> &'a str {
    let bytes = text.as_bytes();
    composed.clear();
    if bytes.is_ascii() {
        return text;
    }
    let mut copied = 0;
    let mut at = next_high(bytes, 0);
    while let Some((cell, length)) = characters.at(text, at) {
        if cell & DELETED != 0 {
            composed.push_str(&text[copied..at]);
            copied = at + length;
        } else if cell & MARK != 0 {
            // What is not marked composes with nothing before it, so it begins a part that is in NFC or not by itself.
            let before = text[copied..at].chars().next_back().map_or(0, char::len_utf8);
            let start = at - before;
            let mut end = at + length;
            while let Some((cell, length)) = characters.at(text, end)
                && cell & MARK != 0
            {
                end += length;
            }
            let part = &text[start..end];
            if is_nfc_quick(part.chars()) != IsNormalized::Yes {
                composed.push_str(&text[copied..start]);
                composed.extend(part.nfc());
                copied = end;
            }
            at = next_high(bytes, end);
            continue;
        }
        at = next_high(bytes, at + length);
    }
    if copied == 0 {
        return text;
    }
    composed.push_str(&text[copied..]);
    composed
}

/// The text in full case folding.
fn fold(characters: &Characters, text: &str, folded: &mut String) {
    folded.clear();
    folded.reserve(text.len());
    let mut copied = 0;
    let mut at = next_high(text.as_bytes(), 0);
    while let Some((cell, length)) = characters.at(text, at) {
        if cell & FOLDS != 0 {
            push_lower(folded, &text[copied..at]);
            let character = text[at..].chars().next().unwrap_or_default();
            folded.extend(characters.folded(character).into_iter().take_while(|&folded| folded != '\0'));
            copied = at + length;
        }
        at = next_high(text.as_bytes(), at + length);
    }
    push_lower(folded, &text[copied..]);
}

/// Append a text of which only ASCII folds.
#[inline]
fn push_lower(folded: &mut String, text: &str) {
    let start = folded.len();
    folded.push_str(text);
    folded[start..].make_ascii_lowercase();
}

/// Finds where the tokens of a folded text are.
struct Cut<'a> {
    characters: &'a Characters,
    text: &'a str,
    spans: &'a mut Vec<(usize, usize)>,
    begins: &'a mut Vec<u64>,
    ends: &'a mut Vec<u64>,
}

impl Work for Cut<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { characters, text, spans, begins, ends } = self;
        let bytes = text.as_bytes();
        // Zeros behind the end begin nothing; there is a block of them at least in part, so that each run has an end.
        for base in (0..=bytes.len()).step_by(BLOCK) {
            let (word, more) = tokens(&block_at(bytes, base));
            begins.push(word | more);
            ends.push(!word);
        }
        let mut at = behind_marker(bytes, 0);
        while let Some(start) = next_set(begins, at) {
            at = start + 1;
            let ascii = ASCII[usize::from(bytes[start])];
            if matches!(ascii, Ascii::Word | Ascii::Single) {
                // Nothing foretells which of both comes next, so there is no branch on it.
                let end = next_set(ends, at).unwrap_or(bytes.len());
                at = if ascii == Ascii::Word { end } else { at };
                if ascii == Ascii::Word && bytes.get(at).is_some_and(|&byte| byte >= 0x80) {
                    at = run_end(characters, text, at);
                }
                spans.push((start, at));
                continue;
            }
            match ascii {
                Ascii::High => {
                    let Some((cell, length)) = characters.at(text, start) else { break };
                    at = start + length;
                    match cell & KIND {
                        WORD => at = run_end(characters, text, at),
                        SINGLE => {}
                        _ => continue,
                    }
                    spans.push((start, at));
                }
                Ascii::Newline => at = behind_marker(bytes, at),
                Ascii::Star if bytes.get(at) == Some(&b'*') => at += 1,
                Ascii::Hyphen if is_letter(characters, text[..start].chars().next_back()) => {
                    if !is_letter(characters, text[at..].chars().next()) {
                        spans.push((start, at));
                    }
                }
                Ascii::Star | Ascii::Hyphen => spans.push((start, at)),
                Ascii::Other | Ascii::Word | Ascii::Single => {}
            }
        }
    }
}

/// The place behind the marker of a list or a quotation at the line start `at`. That of a heading separates anyway.
#[inline]
fn behind_marker(bytes: &[u8], at: usize) -> usize {
    match bytes[at..] {
        [b'>' | b'-' | b'*' | b'+', b' ' | b'\t', ..] => at + 2,
        _ => at,
    }
}

/// The end of the run of letters, marks and numbers that goes on at `at`, or ends there.
#[inline(always)]
fn run_end(characters: &Characters, text: &str, mut at: usize) -> usize {
    let bytes = text.as_bytes();
    while let Some(&byte) = bytes.get(at) {
        match ASCII[usize::from(byte)] {
            Ascii::Word => at += 1,
            Ascii::High => match characters.at(text, at) {
                Some((cell, length)) if cell & KIND == WORD => at += length,
                _ => break,
            },
            _ => break,
        }
    }
    at
}

fn is_letter(characters: &Characters, character: Option<char>) -> bool {
    character.is_some_and(|character| characters.of(character) & LETTER != 0)
}

/// What a byte does to a text that is cut into tokens.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ascii {
    Word,
    Single,
    Other,
    Newline,
    Star,
    Hyphen,
    /// Not ASCII.
    High,
}

/// A backtick, though a symbol, is markup.
static ASCII: [Ascii; 256] = {
    let mut table = [Ascii::Other; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = match byte as u8 {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => Ascii::Word,
            b'$' | b'+' | b'<'..=b'>' | b'^' | b'|' | b'~' | b'%' | b'/' => Ascii::Single,
            b'\n' => Ascii::Newline,
            b'*' => Ascii::Star,
            b'-' => Ascii::Hyphen,
            0x80.. => Ascii::High,
            _ => Ascii::Other,
        };
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::super::characters::OTHER;
    use super::*;

    fn tokens(text: &str) -> Vec<String> {
        let mut tokens = Tokens::new();
        tokens.read("what was before is gone");
        tokens.read(text);
        assert!(tokens.iter().enumerate().all(|(place, token)| tokens.get(place) == token && !token.is_empty()));
        tokens.iter().map(str::to_owned).collect()
    }

    #[test]
    fn bytes_are_classed_as_characters_are() {
        for byte in 0..128_u8 {
            let kind = Characters::get().of(char::from(byte)) & KIND;
            let expected = match ASCII[usize::from(byte)] {
                Ascii::Word => WORD,
                Ascii::Single | Ascii::Star => SINGLE,
                _ if byte == b'`' => SINGLE,
                _ => OTHER,
            };
            assert_eq!(kind, expected, "{byte}");
        }
    }

    #[test]
    fn light_is_composed_and_has_single_blanks() {
        assert_eq!(light("cafe\u{301}\u{2003} \u{1f}au\tlait \n"), "café au lait");
        assert_eq!(light("a\u{200b}b\u{ad}c\u{feff}"), "abc");
        assert_eq!(light(" \u{3000}"), "");
        assert_eq!(light(" a"), "a");
        for own in ["", "a b", "É ①", "x² + 3x", "\u{1F600}"] {
            assert!(matches!(light(own), Cow::Borrowed(same) if same == own), "{own}");
        }
    }

    /// Words of an alphabet, by a generator of its own, so that a failure comes again.
    fn random_texts(alphabet: &[&str], longest: u64, count: usize) -> impl Iterator<Item = String> {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut next = move |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        (0..count).map(move |_| (0..next(longest)).map(|_| alphabet[next(alphabet.len() as u64) as usize]).collect())
    }

    #[test]
    fn parts_are_composed_as_the_whole_is() {
        let alphabet = [
            "a",
            "e",
            "é",
            "\u{301}",
            "\u{323}",
            "\u{344}",
            "\u{212B}",
            "\u{1100}",
            "\u{1161}",
            "\u{11A8}",
            "가",
            "क",
            "\u{93C}",
            "\u{94D}",
            "\u{AD}",
            "\u{200B}",
            "日",
            " ",
            "\u{958}",
            "\u{FB1D}",
            "\u{1D15E}",
            "\u{F900}",
        ];
        let mut composed = String::from("of the text before");
        let mut changed = 0;
        for text in random_texts(&alphabet, 12, 20_000) {
            let expected: String =
                text.nfc().filter(|character| !matches!(character, '\u{AD}' | '\u{200B}' | '\u{FEFF}')).collect();
            assert_eq!(cleaned(Characters::get(), &text, &mut composed), expected, "{text:?}");
            changed += usize::from(text != expected);
        }
        assert!(changed > 1_000);
    }

    #[test]
    fn long_texts_are_split_and_joined_alike() {
        let alphabet = [
            "word",
            "a",
            " ",
            " ",
            " ",
            "  ",
            "\t",
            "\u{1C}",
            "\u{85}",
            "\u{A0}",
            "é",
            "\u{2003}",
            "’",
            "の",
            "\u{3000}",
            "\u{180E}",
            "\u{1680}",
            "\u{2029}",
            "\u{205F}",
            "many letters in a row without anything that is not one blank between two of them",
        ];
        let mut light = Light::new();
        for text in random_texts(&alphabet, 60, 20_000) {
            let python = |character: char| character.is_whitespace() || ('\u{1C}'..='\u{1F}').contains(&character);
            let words: Vec<&str> = text.split(python).filter(|word| !word.is_empty()).collect();
            assert_eq!(light.of(&text), words.join(" "), "{text:?}");
        }
    }

    #[test]
    fn tokens_are_runs_single_characters_and_symbols() {
        assert_eq!(tokens("STRASSE straße İ"), ["strasse", "strasse", "i\u{307}"]);
        assert_eq!(tokens("東京タワー, ภา ok2"), ["東", "京", "タ", "ワ", "ー", "ภ", "า", "ok2"]);
        assert_eq!(tokens("a<b 50% x²/√2 €5"), ["a", "<", "b", "50", "%", "x²", "/", "√", "2", "€", "5"]);
        assert_eq!(tokens("\u{1F600}\u{1F680}Ⓐ"), ["\u{1F600}", "\u{1F680}", "ⓐ"]);
        assert_eq!(tokens(" \n"), [""; 0]);
    }

    #[test]
    fn a_hyphen_between_letters_separates() {
        assert_eq!(
            tokens("well-known é-ß 3-4 a-1 -x x- a--b"),
            ["well", "known", "é", "ss", "3", "-", "4", "a", "-", "1", "-", "x", "x", "-", "a", "-", "-", "b"]
        );
        // The folding of the first letter ends in a mark.
        assert_eq!(tokens("İ-a a`-b"), ["i\u{307}", "-", "a", "a", "-", "b"]);
        assert_eq!(tokens("-"), ["-"]);
    }

    #[test]
    fn markup_is_blanked_out() {
        assert_eq!(tokens("# a\n- b\n* c\n+ d\n> e\n-f\n  - g"), ["a", "b", "c", "d", "e", "-", "f", "-", "g"]);
        assert_eq!(tokens("**a** ```b``` __c__ *d* ***"), ["a", "b", "c", "*", "d", "*", "*"]);
        assert_eq!(tokens("\u{feff}- a\r\n\u{200b}> b\n-\tc\n>"), ["a", "b", "c", ">"]);
    }

    #[test]
    fn numbers_lose_the_commas_of_thousands_only() {
        assert_eq!(numbers("1,000.50 and 3.14, v2.0."), ["1000.50", "2.0", "3.14"]);
        assert_eq!(
            numbers("1,000,000 1,00 1000,000 1,000.5.6 1.000,5 12,345, 7"),
            ["1,00", "1,000.5.6", "1.000,5", "1000,000", "1000000", "12345", "7"]
        );
        assert_eq!(numbers("-5 +6 x² ½ ٣,٤٥٦ 1,２３４"), ["1２３４", "5", "6", "٣٤٥٦"]);
        assert_eq!(numbers("1\u{200b}2"), ["12"]);
        assert_eq!(numbers("1.5,000 1,000,5"), ["1,000,5", "1.5,000"]);
        assert_eq!(numbers("none."), [""; 0]);
    }

    #[test]
    fn hashes_are_the_low_half() {
        assert_eq!(token_hash("the"), xxh3_64(b"the") as u32);
        let mut tokens = Tokens::new();
        tokens.read("The cat");
        let mut hashes = vec![7];
        tokens.hashes_into(&mut hashes);
        assert_eq!(hashes, [7, token_hash("the"), token_hash("cat")]);
    }
}
