//! The splits of other families than ours, by the same character classes.

use crate::bpe::classes::{Class, Classes};
use crate::bpe::split;

/// Which split a tokenizer has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pattern {
    /// [`split::pieces`]: train_tokenizer's own, and that of Qwen 2 and 3.
    #[default]
    Qwen2,
    /// [`threes`]: Llama 3, GPT-4.
    Llama3,
    /// [`gpt2`]: GPT-2, RoBERTa, GPT-NeoX.
    Gpt2,
}

/// The pieces of `text` by the split of Llama 3:
///
/// ```text
/// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
/// ```
///
/// It is [`split::pieces`] but for `{1,3}`. There a number is a piece of its own, so that here it goes on for up to
/// three of those.
pub fn threes(text: &str) -> impl Iterator<Item = &str> {
    let classes = Classes::get();
    let mut pieces = split::pieces(text).peekable();
    let mut start = 0;
    std::iter::from_fn(move || {
        let first = pieces.next()?;
        let mut end = start + first.len();
        if is_number(classes, first) {
            for _ in 1..3 {
                let Some(next) = pieces.next_if(|next| is_number(classes, next)) else { break };
                end += next.len();
            }
        }
        let piece = &text[start..end];
        start = end;
        Some(piece)
    })
}

#[inline]
fn is_number(classes: &Classes, piece: &str) -> bool {
    piece.chars().next().is_some_and(|first| classes.of(first) == Class::Number)
}

/// The pieces of `text` by the split of GPT-2:
///
/// ```text
/// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
/// ```
pub fn gpt2(text: &str) -> impl Iterator<Item = &str> {
    let scanner = Gpt2 { text, classes: Classes::get() };
    let mut start = 0;
    std::iter::from_fn(move || {
        let end = scanner.end_of_piece(start)?;
        let piece = &text[start..end];
        start = end;
        Some(piece)
    })
}

struct Gpt2<'a> {
    text: &'a str,
    classes: &'static Classes,
}

impl Gpt2<'_> {
    /// The class of the character at `at` and the position after it; `None` at the end of the text. Line ends are
    /// white space like any other here.
    #[inline]
    fn at(&self, at: usize) -> Option<(Class, usize)> {
        let byte = *self.text.as_bytes().get(at)?;
        let (class, after) = if byte < 0x80 {
            (self.classes.of_ascii(byte), at + 1)
        } else {
            let character = self.text[at..].chars().next()?;
            (self.classes.of(character), at + character.len_utf8())
        };
        Some((if class == Class::Newline { Class::Space } else { class }, after))
    }

    #[inline]
    fn end_of_piece(&self, start: usize) -> Option<usize> {
        let (first, after) = self.at(start)?;
        if let Some(length) = contraction(&self.text.as_bytes()[start..]) {
            return Some(start + length);
        }
        if first != Class::Space {
            return Some(self.run(after, first).0);
        }
        // Of all white space only U+0020 may come before.
        match self.at(after) {
            Some((second, after)) if second != Class::Space && self.text.as_bytes()[start] == b' ' => {
                Some(self.run(after, second).0)
            }
            _ => {
                let (end, last) = self.run(after, Class::Space);
                Some(if end == self.text.len() { end } else { last.unwrap_or(end) })
            }
        }
    }

    /// The end of the run of `class` that goes on at `at`, and where its last character begins, if it has one.
    #[inline]
    fn run(&self, mut at: usize, class: Class) -> (usize, Option<usize>) {
        let mut last = None;
        while let Some((found, after)) = self.at(at) {
            if found != class {
                break;
            }
            last = Some(at);
            at = after;
        }
        (at, last)
    }
}

/// The length of `'s|'t|'re|'ve|'m|'ll|'d` at the front.
#[inline]
fn contraction(bytes: &[u8]) -> Option<usize> {
    match bytes {
        [b'\'', b's' | b't' | b'm' | b'd', ..] => Some(2),
        [b'\'', b'r' | b'v', b'e', ..] | [b'\'', b'l', b'l', ..] => Some(3),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check<'a>(found: impl Iterator<Item = &'a str>, expected: &[&str]) {
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn numbers_go_in_threes() {
        check(threes("12345678"), &["123", "456", "78"]);
        check(threes("1a23 456 7"), &["1", "a", "23", " ", "456", " ", "7"]);
        check(threes("x²½Ⅷ٣4"), &["x", "²½Ⅷ", "٣4"]);
        check(threes("1'S 2\n\n3"), &["1", "'S", " ", "2", "\n\n", "3"]);
        check(threes(""), &[]);
    }

    #[test]
    fn gpt2_takes_a_space_before_anything() {
        check(gpt2(" a 1²3 !? é"), &[" a", " 1²3", " !?", " é"]);
        check(gpt2("\ta\u{a0}b"), &["\t", "a", "\u{a0}", "b"]);
        check(gpt2("a!1"), &["a", "!", "1"]);
        check(gpt2(""), &[]);
    }

    #[test]
    fn gpt2_leaves_the_last_white_space_to_what_follows() {
        check(gpt2("a  b"), &["a", " ", " b"]);
        check(gpt2("a \n\u{3000}b"), &["a", " \n", "\u{3000}", "b"]);
        check(gpt2("\n b\n"), &["\n", " b", "\n"]);
        check(gpt2("a \n "), &["a", " \n "]);
    }

    #[test]
    fn gpt2_contractions_are_of_lower_case_and_at_the_start_of_a_piece() {
        check(gpt2("I'm we'RE 'llama"), &["I", "'m", " we", "'", "RE", " '", "llama"]);
        check(gpt2("''s 's'ſ'"), &["''", "s", " '", "s", "'", "ſ", "'"]);
        check(gpt2("'r'"), &["'", "r", "'"]);
    }
}
