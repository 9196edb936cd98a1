//! The split into pieces, within which merges happen.
//!
//! A hand-written scanner of the expressions below, their alternatives tried left to right at each position. It is the
//! definition of the split; [`crate::bpe::scan`] finds the same pieces faster.
//!
//! Every text is covered without gaps. A text must be split whole: `\s+(?!\S)` makes the end of the text differ from
//! any other place.

use crate::bpe::classes::{Class, Classes};

/// Which expression splits a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pattern {
    /// Qwen 2 and 3, and train_tokenizer:
    ///
    /// ```text
    /// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
    /// ```
    #[default]
    Qwen2,
    /// Llama 3 and GPT-4: the same with `\p{N}{1,3}`.
    Llama3,
    /// GPT-2, RoBERTa and GPT-NeoX:
    ///
    /// ```text
    /// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
    /// ```
    Gpt2,
}

/// The pieces of `text`, in order; together they are `text`.
pub fn pieces(text: &str, pattern: Pattern) -> impl Iterator<Item = &str> {
    let scanner = Pieces::of(text, pattern);
    let mut start = 0;
    std::iter::from_fn(move || {
        let end = scanner.end_of(start);
        let piece = &text[start..end];
        start = end;
        (!piece.is_empty()).then_some(piece)
    })
}

/// Finds where pieces of a text end.
pub(crate) struct Pieces<'a> {
    text: &'a str,
    pattern: Pattern,
    classes: &'static Classes,
}

impl<'a> Pieces<'a> {
    pub(crate) fn of(text: &'a str, pattern: Pattern) -> Self {
        Self { text, pattern, classes: Classes::get() }
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

    /// The end of the run of at most `most` characters of `class` that continues at `at`.
    #[inline]
    fn run(&self, mut at: usize, class: Class, most: usize) -> usize {
        for _ in 0..most {
            match self.at(at) {
                Some((found, after)) if found == class => at = after,
                _ => break,
            }
        }
        at
    }

    /// The end of the piece that begins at `start`; `start` itself at the end of the text.
    #[inline]
    pub(crate) fn end_of(&self, start: usize) -> usize {
        let Some((first, after)) = self.at(start) else { return start };
        let gpt2 = self.pattern == Pattern::Gpt2;
        let numbers_after_one = match self.pattern {
            Pattern::Qwen2 => 0,
            Pattern::Llama3 => 2,
            Pattern::Gpt2 => usize::MAX,
        };
        let rest = &self.text.as_bytes()[start..];
        match first {
            Class::Letter => return self.run(after, Class::Letter, usize::MAX),
            Class::Number => return self.run(after, Class::Number, numbers_after_one),
            Class::Other | Class::Space | Class::Newline => {}
        }
        if let Some(length) = contraction(rest, self.pattern) {
            return start + length;
        }
        // Of all white space only U+0020 may come before anything; before letters, with Qwen and Llama, any one character
        // that is neither number nor line end.
        let blank = rest[0] == b' ';
        let others = match self.at(after) {
            Some((Class::Letter, after)) if blank || (!gpt2 && first != Class::Newline) => {
                return self.run(after, Class::Letter, usize::MAX);
            }
            Some((Class::Number, after)) if blank && gpt2 => return self.run(after, Class::Number, usize::MAX),
            Some((Class::Other, after)) if blank => after,
            _ if first == Class::Other => after,
            _ => return self.white_space(start),
        };
        let end = self.run(others, Class::Other, usize::MAX);
        if gpt2 { end } else { self.run(end, Class::Newline, usize::MAX) }
    }

    /// `\s*[\r\n]+|\s+(?!\S)|\s+`, with GPT-2 without the first, where `start` is white space.
    #[inline]
    fn white_space(&self, start: usize) -> usize {
        let mut end = start;
        let mut last = start;
        let mut after_line_end = None;
        while let Some((class @ (Class::Space | Class::Newline), after)) = self.at(end) {
            last = end;
            end = after;
            if class == Class::Newline && self.pattern != Pattern::Gpt2 {
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

/// The length of the contraction that `bytes` begin with: `'s|'t|'re|'ve|'m|'ll|'d`, in lower case only with GPT-2.
#[inline]
pub(crate) fn contraction(bytes: &[u8], pattern: Pattern) -> Option<usize> {
    let [b'\'', rest @ ..] = bytes else { return None };
    let folds = pattern != Pattern::Gpt2;
    let lower = |byte: u8| if folds { byte.to_ascii_lowercase() } else { byte };
    let (first, second) = (lower(*rest.first()?), rest.get(1).copied().map_or(0, lower));
    match (first, second) {
        (b's' | b't' | b'm' | b'd', _) => Some(2),
        (b'r' | b'v', b'e') | (b'l', b'l') => Some(3),
        // Case folding makes U+017F an s.
        (0xC5, 0xBF) if folds => Some(3),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern::{Gpt2, Llama3, Qwen2};
    use super::{Pattern, pieces};

    #[track_caller]
    fn check(pattern: Pattern, text: &str, expected: &[&str]) {
        assert_eq!(pieces(text, pattern).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn contractions_win_only_leftmost() {
        check(Qwen2, "'sfoo", &["'s", "foo"]);
        check(Qwen2, "'xfoo", &["'xfoo"]);
        check(Qwen2, "I'LL we'Re 'ſa", &["I", "'LL", " we", "'Re", " '", "ſa"]);
        check(Qwen2, "'ſa'", &["'ſ", "a", "'"]);
        check(Qwen2, "'r", &["'r"]);
        check(Qwen2, "'", &["'"]);
        check(Qwen2, "'é", &["'é"]);
    }

    #[test]
    fn one_character_may_come_before_letters() {
        check(Qwen2, "\u{a0}été\tx\u{2028}y", &["\u{a0}été", "\tx", "\u{2028}y"]);
        check(Qwen2, "\nx", &["\n", "x"]);
        check(Qwen2, "12a", &["1", "2", "a"]);
        check(Qwen2, "<think>", &["<think", ">"]);
    }

    #[test]
    fn punctuation_takes_a_space_before_and_line_ends_after() {
        check(Qwen2, " !?\r\n\nx", &[" !?\r\n\n", "x"]);
        check(Qwen2, "\u{2003}!", &["\u{2003}", "!"]);
        check(Qwen2, "\t!", &["\t", "!"]);
        check(Qwen2, "  !", &[" ", " !"]);
    }

    #[test]
    fn white_space_ends_after_its_last_line_end() {
        check(Qwen2, " \n \n  x", &[" \n \n", " ", " x"]);
        check(Qwen2, "a  ", &["a", "  "]);
        check(Qwen2, "a  b", &["a", " ", " b"]);
        check(Qwen2, "a \u{3000}1", &["a", " ", "\u{3000}", "1"]);
        check(Qwen2, "", &[]);
    }

    #[test]
    fn numbers_go_in_threes() {
        check(Llama3, "12345678", &["123", "456", "78"]);
        check(Llama3, "1a23 456 7", &["1", "a", "23", " ", "456", " ", "7"]);
        check(Llama3, "x²½Ⅷ٣4", &["x", "²½Ⅷ", "٣4"]);
        check(Llama3, "1'S 2\n\n3", &["1", "'S", " ", "2", "\n\n", "3"]);
        check(Llama3, "", &[]);
    }

    #[test]
    fn gpt2_takes_a_space_before_anything() {
        check(Gpt2, " a 1²3 !? é", &[" a", " 1²3", " !?", " é"]);
        check(Gpt2, "\ta\u{a0}b", &["\t", "a", "\u{a0}", "b"]);
        check(Gpt2, "a!1", &["a", "!", "1"]);
        check(Gpt2, "", &[]);
    }

    #[test]
    fn gpt2_leaves_the_last_white_space_to_what_follows() {
        check(Gpt2, "a  b", &["a", " ", " b"]);
        check(Gpt2, "a \n\u{3000}b", &["a", " \n", "\u{3000}", "b"]);
        check(Gpt2, "\n b\n", &["\n", " b", "\n"]);
        check(Gpt2, "a \n ", &["a", " \n "]);
    }

    #[test]
    fn gpt2_contractions_are_of_lower_case_and_at_the_start_of_a_piece() {
        check(Gpt2, "I'm we'RE 'llama", &["I", "'m", " we", "'", "RE", " '", "llama"]);
        check(Gpt2, "''s 's'ſ'", &["''", "s", " '", "s", "'", "ſ", "'"]);
        check(Gpt2, "'r'", &["'", "r", "'"]);
    }
}
