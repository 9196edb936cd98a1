//! The split into pieces, within which merges happen.
//!
//! A hand-written scanner of this expression, its alternatives tried left to right at each position:
//!
//! ```text
//! (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//! ```
//!
//! Every text is covered without gaps. A text must be split whole: `\s+(?!\S)` makes the end of the text differ from
//! any other place.

use crate::bpe::classes::{Class, Classes};

/// The pieces of `text`, in order; together they are `text`.
pub fn pieces(text: &str) -> Pieces<'_> {
    Pieces::of(text)
}

/// The iterator of [`pieces`].
pub struct Pieces<'a> {
    text: &'a str,
    start: usize,
    classes: &'static Classes,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = &'a str;

    #[inline]
    fn next(&mut self) -> Option<&'a str> {
        let start = self.start;
        if start == self.text.len() {
            return None;
        }
        self.start = self.end_of(start);
        Some(&self.text[start..self.start])
    }
}

impl<'a> Pieces<'a> {
    pub(crate) fn of(text: &'a str) -> Self {
        Self { text, start: 0, classes: Classes::get() }
    }

    /// The class of the character at `at` and the position after it; `None` at the end of the text.
    #[inline]
    fn at(&self, at: usize) -> Option<(Class, usize)> {
        let byte = *self.text.as_bytes().get(at)?;
        if byte < 0x80 {
            return Some((self.classes.of_ascii(byte), at + 1));
        }
        let character = self.text[at..].chars().next()?;
        Some((self.classes.of(character), at + character.len_utf8()))
    }

    /// The end of the run of `class` that goes on at `at`.
    #[inline]
    fn run(&self, mut at: usize, class: Class) -> usize {
        while let Some((found, after)) = self.at(at) {
            if found != class {
                break;
            }
            at = after;
        }
        at
    }

    /// The end of the piece that begins at `start`.
    #[inline]
    pub(crate) fn end_of(&self, start: usize) -> usize {
        let Some((first, after)) = self.at(start) else { return start };
        match first {
            Class::Letter => return self.run(after, Class::Letter),
            Class::Number => return after,
            Class::Other | Class::Space | Class::Newline => {}
        }
        if let Some(length) = contraction(&self.text.as_bytes()[start..]) {
            return start + length;
        }
        let second = self.at(after);
        // [^\r\n\p{L}\p{N}]?\p{L}+
        if let Some((Class::Letter, after_second)) = second
            && first != Class::Newline
        {
            return self.run(after_second, Class::Letter);
        }
        // ` ?[^\s\p{L}\p{N}]+[\r\n]*`; of all white space only U+0020 may come before.
        let others = match (first, second) {
            (Class::Other, _) => Some(after),
            (_, Some((Class::Other, after_second))) if self.text.as_bytes()[start] == b' ' => Some(after_second),
            _ => None,
        };
        match others {
            Some(at) => self.run(self.run(at, Class::Other), Class::Newline),
            None => self.white_space(start),
        }
    }

    /// `\s*[\r\n]+|\s+(?!\S)|\s+`, where `start` is white space.
    #[inline]
    fn white_space(&self, start: usize) -> usize {
        let mut end = start;
        let mut last = start;
        let mut after_line_end = None;
        while let Some((class @ (Class::Space | Class::Newline), after)) = self.at(end) {
            last = end;
            end = after;
            if class == Class::Newline {
                after_line_end = Some(after);
            }
        }
        match after_line_end {
            Some(after) => after,
            None if end == self.text.len() || last == start => end,
            None => last,
        }
    }
}

/// The length of the contraction that `bytes` begin with: `(?i:'s|'t|'re|'ve|'m|'ll|'d)`.
///
/// Case folding makes U+017F (bytes C5 BF) an s.
#[inline]
pub(crate) fn contraction(bytes: &[u8]) -> Option<usize> {
    if bytes.first() != Some(&b'\'') {
        return None;
    }
    let second = bytes.get(2).copied().unwrap_or(0);
    match bytes.get(1)? {
        b's' | b'S' | b't' | b'T' | b'm' | b'M' | b'd' | b'D' => Some(2),
        b'r' | b'R' | b'v' | b'V' if second.eq_ignore_ascii_case(&b'e') => Some(3),
        b'l' | b'L' if second.eq_ignore_ascii_case(&b'l') => Some(3),
        0xC5 if second == 0xBF => Some(3),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::pieces;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        assert_eq!(pieces(text).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn contractions_win_only_leftmost() {
        check("'sfoo", &["'s", "foo"]);
        check("'xfoo", &["'xfoo"]);
        check("I'LL we'Re 'ſa", &["I", "'LL", " we", "'Re", " '", "ſa"]);
        check("'ſa'", &["'ſ", "a", "'"]);
        check("'r", &["'r"]);
        check("'", &["'"]);
        check("'é", &["'é"]);
    }

    #[test]
    fn one_character_may_come_before_letters() {
        check("\u{a0}été\tx\u{2028}y", &["\u{a0}été", "\tx", "\u{2028}y"]);
        check("\nx", &["\n", "x"]);
        check("12a", &["1", "2", "a"]);
        check("<think>", &["<think", ">"]);
    }

    #[test]
    fn punctuation_takes_a_space_before_and_line_ends_after() {
        check(" !?\r\n\nx", &[" !?\r\n\n", "x"]);
        check("\u{2003}!", &["\u{2003}", "!"]);
        check("\t!", &["\t", "!"]);
        check("  !", &[" ", " !"]);
    }

    #[test]
    fn white_space_ends_after_its_last_line_end() {
        check(" \n \n  x", &[" \n \n", " ", " x"]);
        check("a  ", &["a", "  "]);
        check("a  b", &["a", " ", " b"]);
        check("a \u{3000}1", &["a", " ", "\u{3000}", "1"]);
        check("", &[]);
    }
}
