//! The split of [`crate::bpe::split`], 64 bytes at a time.
//!
//! A block begins where a piece begins; the expressions look at nothing before. Where pieces begin within the block
//! follows from the classes of its bytes by arithmetic on 64-bit numbers, one bit a byte. The last piece may continue
//! after the block and is left to the next one. A piece that no block can hold is left to the scanner of one piece.

use crate::bpe::classes::{CLASSES, Class, Classes};
use crate::bpe::key::{Key, SHORT};
use crate::bpe::split::{Pattern, Pieces, contraction};
use crate::simd::{BLOCK, classify};

/// A block, and as many bytes after it as a key of its last byte reads.
const WINDOW: usize = BLOCK + 16;

/// Takes the pieces of a text in order.
pub(crate) trait Visit {
    /// The piece is `text[start..end]`; `key` is its key, [`Key::NONE`] if it is longer than [`SHORT`].
    fn piece(&mut self, start: usize, end: usize, key: Key);
}

/// The text may not be in NFC. Some of its pieces were visited.
pub(crate) struct Marked;

/// Visit the pieces of `text`, up to the first mark if `stop_at_marks`.
///
/// # Errors
/// [`Marked`] at a mark, though some pieces may have been visited by then.
#[inline(always)]
pub(crate) fn scan(text: &str, pattern: Pattern, stop_at_marks: bool, visit: &mut impl Visit) -> Result<(), Marked> {
    let classes = Classes::get();
    let bytes = text.as_bytes();
    let mut copy;
    let mut start = 0;
    while start < bytes.len() {
        let rest = &bytes[start..];
        let window = match rest.first_chunk::<WINDOW>() {
            Some(window) => window,
            None => {
                copy = [0; WINDOW];
                copy[..rest.len()].copy_from_slice(rest);
                &copy
            }
        };
        let (starts, marked) = block(pattern, classes, window, rest.len());
        if marked && stop_at_marks {
            return Err(Marked);
        }
        let mut from = 0;
        let mut left = starts & !1;
        while left != 0 {
            let to = left.trailing_zeros() as usize;
            left &= left - 1;
            visit.piece(start + from, start + to, key(window, from, to));
            from = to;
        }
        if rest.len() <= BLOCK {
            visit.piece(start + from, bytes.len(), key(window, from, rest.len()));
            return Ok(());
        }
        if from == 0 {
            let end = Pieces::of(text, pattern).end_of(start);
            if stop_at_marks && text[start..end].chars().any(|character| classes.look_up(character as u32).1) {
                return Err(Marked);
            }
            visit.piece(start, end, if end - start > SHORT { Key::NONE } else { key(window, 0, end - start) });
            start = end;
        }
        start += from;
    }
    Ok(())
}

#[inline(always)]
fn key(window: &[u8; WINDOW], from: usize, to: usize) -> Key {
    let length = to - from;
    match window[from..].first_chunk() {
        Some(bytes) if length <= SHORT => Key::within(*bytes, length),
        _ => Key::NONE,
    }
}

/// The lowest `count` bits, up to 64.
#[inline(always)]
fn low(count: usize) -> u64 {
    if count >= BLOCK { !0 } else { (1 << count) - 1 }
}

/// Where pieces begin in the block at the front of `window`, as bits, and whether a mark is in it.
///
/// `length` is that of the text from here on. If the block does not reach the end of the text, only those begins are
/// told that no later byte can change.
#[inline(always)]
fn block(pattern: Pattern, classes: &Classes, window: &[u8; WINDOW], length: usize) -> (u64, bool) {
    let Some(bytes) = window.first_chunk::<BLOCK>() else { return (1, false) };
    let ascii = classify(bytes);
    let mut known = low(length);
    let (mut letter, mut number, mut space) = (ascii.letter, ascii.number, ascii.space);
    let mut newline = ascii.newline & known;
    let mut inner = 0;
    let mut marked = false;
    if ascii.high & known != 0 {
        let wide;
        (wide, inner, known, marked) = high(classes, bytes, ascii.high & known, known);
        letter |= wide[Class::Letter as usize];
        number |= wide[Class::Number as usize];
        space |= wide[Class::Space as usize];
    }
    letter &= known;
    number &= known;
    space &= known;
    let other = known & !(letter | number | space | newline);
    let outer = !inner;
    let gpt2 = pattern == Pattern::Gpt2;
    if gpt2 {
        // To GPT-2 line ends are white space like any other.
        space |= newline;
        newline = 0;
    }

    // ` ?[^\s\p{L}\p{N}]+[\r\n]*` takes the line ends after it: adding to its first bit makes a run of ones overflow.
    let taken = newline & !newline.wrapping_add(newline & other << 1);
    let white = (space | newline) & !taken;
    let first_white = white & !(white << 1);
    // `\s+(?!\S)` leaves the last character before one that is not white.
    let mut last_space = space & (letter | number | other) >> 1;
    // `\s*[\r\n]+` ends after the last line end of the run, so not after one that another follows.
    let mut after_newline = space & newline << 1;
    let mut late = space.wrapping_add(after_newline) & newline & !space;
    while late != 0 {
        // The run of white space before this line end, from the line end before.
        let to = late.trailing_zeros() as usize;
        after_newline &= !low(to) | low(BLOCK - (newline & low(to)).leading_zeros() as usize);
        late &= late - 1;
    }
    let not_after_blank = !((ascii.blank & known) << 1);
    let first_other = other & !(other << 1) & not_after_blank;
    let first_letter = letter & !(letter << 1);

    let mut starts = (first_white | after_newline | first_other) & outer;
    starts |= match pattern {
        Pattern::Qwen2 => number & outer,
        Pattern::Llama3 => threes(number, outer),
        Pattern::Gpt2 => number & !(number << 1) & not_after_blank,
    };
    if inner != 0 {
        // From the last byte of a white character to its first; none has more than three.
        for _ in 0..2 {
            last_space = last_space & outer | (last_space & inner) >> 1;
        }
    }
    starts |= last_space;
    // `[^\r\n\p{L}\p{N}]?\p{L}+`: a piece of one character that is neither number nor line end goes on with letters.
    let mut before_letters = starts & (space | other);
    if inner != 0 {
        for _ in 0..3 {
            before_letters |= before_letters << 1 & inner;
        }
    }
    let mut quotes = ascii.quote & starts & letter >> 1;
    starts |= first_letter & if gpt2 { not_after_blank } else { !(before_letters << 1) };
    while quotes != 0 {
        let at = quotes.trailing_zeros() as usize;
        quotes &= quotes - 1;
        if let Some(length) = contraction(&window[at..], pattern) {
            if gpt2 {
                starts &= low(at + 1) | !low(at + length);
            }
            starts |= letter & low(at + length + 1) & !low(at + length);
        }
    }

    if length > BLOCK {
        // A run of white space at the end may go on; of it only the begin is certain.
        let dark = known & !(space | newline);
        let edge = BLOCK - dark.leading_zeros() as usize;
        let end = BLOCK - known.leading_zeros() as usize;
        if edge < end {
            starts &= low(edge + 1);
        }
    }
    (starts | 1, marked)
}

/// Every third character of each run of numbers; `outer` are the first bytes of characters.
#[inline(always)]
fn threes(number: u64, outer: u64) -> u64 {
    let mut starts = 0;
    let mut left = number & outer;
    while left != 0 {
        let first = left & left.wrapping_neg();
        starts |= first;
        // The run from here: adding to its first bit makes it overflow, into the first bit after it.
        let run = number & !number.wrapping_add(first) & !(first - 1);
        let mut rest = left & run;
        for _ in 0..3 {
            rest &= rest.wrapping_sub(1);
        }
        left = left & !run | rest;
    }
    starts
}

/// The bytes of the characters outside ASCII, by class; the bytes of them that are not the first; which bytes of the
/// block are known, without those of a character that continues after it; whether a mark is among them.
#[inline(never)]
fn high(classes: &Classes, bytes: &[u8; BLOCK], mut rest: u64, mut known: u64) -> ([u64; CLASSES], u64, u64, bool) {
    let mut wide = [0; CLASSES];
    let mut inner = 0;
    let mut marked = false;
    while rest != 0 {
        let at = rest.trailing_zeros() as usize;
        let byte = |offset: usize| u32::from(bytes.get(at + offset).copied().unwrap_or(0) & 0x3F);
        let lead = u32::from(bytes[at]);
        let (width, code) = match lead {
            0..0xE0 => (2, (lead & 0x1F) << 6 | byte(1)),
            0xE0..0xF0 => (3, (lead & 0x0F) << 12 | byte(1) << 6 | byte(2)),
            _ => (4, (lead & 0x07) << 18 | byte(1) << 12 | byte(2) << 6 | byte(3)),
        };
        if at + width > BLOCK {
            known &= low(at);
            break;
        }
        let (class, mark) = classes.look_up(code);
        let all = ((1 << width) - 1) << at;
        wide[class as usize] |= all;
        marked |= mark;
        inner |= all & (all << 1);
        rest &= !all;
    }
    (wide, inner, known, marked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpe::split::pieces;
    use crate::simd::{Level, Work, run};

    #[derive(Default)]
    struct Collect(Vec<(usize, usize)>, Vec<Key>);

    impl Visit for Collect {
        fn piece(&mut self, start: usize, end: usize, key: Key) {
            self.0.push((start, end));
            self.1.push(key);
        }
    }

    struct Scan<'a>(&'a str, Pattern, bool);

    impl Work for Scan<'_> {
        type Output = Option<Collect>;

        #[inline(always)]
        fn run(self) -> Option<Collect> {
            let mut found = Collect::default();
            scan(self.0, self.1, self.2, &mut found).ok().map(|()| found)
        }
    }

    #[track_caller]
    fn check(text: &str) {
        for pattern in [Pattern::Qwen2, Pattern::Llama3, Pattern::Gpt2] {
            let mut end = 0;
            let expected: Vec<(usize, usize)> = pieces(text, pattern)
                .map(|piece| {
                    end += piece.len();
                    (end - piece.len(), end)
                })
                .collect();
            for level in Level::available() {
                let found = run(level, Scan(text, pattern, false)).unwrap();
                assert_eq!(found.0, expected, "{pattern:?} {} {text:?}", level.name());
                for (&(start, end), key) in found.0.iter().zip(found.1) {
                    let piece = &text.as_bytes()[start..end];
                    assert_eq!(key, if piece.len() > SHORT { Key::NONE } else { Key::of(piece) });
                }
            }
        }
    }

    /// A small generator of numbers below `bound`, the same in every run.
    fn numbers(seed: u64) -> impl FnMut(usize) -> usize {
        let mut state = seed;
        move |bound| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % bound
        }
    }

    const PARTS: [&str; 48] = [
        "a",
        "b",
        "word",
        "Z",
        "é",
        "ſ",
        "中",
        "文字",
        "𝒳",
        "\u{e4e}",
        "1",
        "23",
        "٣",
        "½",
        "𝟘",
        " ",
        " ",
        "  ",
        "   ",
        "\t",
        "\u{b}",
        "\u{a0}",
        "\u{3000}",
        "\u{2003}",
        "\u{85}",
        "\n",
        "\n",
        "\r\n",
        "\r",
        "\n\n",
        ".",
        "!",
        "(",
        "…",
        "—",
        "\u{1f600}",
        "\u{301}",
        "\0",
        "'",
        "'s",
        "'S",
        "'t",
        "'re",
        "'LL",
        "'ſ",
        "'d",
        "'x",
        "''",
    ];

    #[test]
    fn blocks_and_single_pieces_agree_on_random_texts() {
        for seed in 0..6_000 {
            let mut draw = numbers(seed);
            // A few parts only, or all: long runs of one class as well as every neighbourhood.
            let kinds = [2, 4, 12, PARTS.len()][draw(4)];
            let chosen: Vec<&str> = (0..kinds).map(|_| PARTS[draw(PARTS.len())]).collect();
            let length = [10, 70, 150, 400][draw(4)];
            let text: String = (0..length).map(|_| chosen[draw(kinds)]).collect();
            check(&text);
        }
    }

    #[test]
    fn blocks_and_single_pieces_agree_at_every_edge() {
        for part in PARTS {
            for next in PARTS {
                for length in (50..70).chain([114, 127, 128]) {
                    for filler in ["x", " ", ".", "\n"] {
                        check(&format!("{}{part}{next}", filler.repeat(length)));
                    }
                    check(&format!("{}{part}{next} y", "x".repeat(length)));
                }
            }
        }
    }

    #[test]
    fn long_runs_are_one_piece_or_split_at_their_end() {
        for character in ["a", " ", "\n", ".", "中", "\u{3000}", "é"] {
            for length in [15, 16, 63, 64, 65, 79, 80, 81, 1000] {
                for around in ["", "b", " ", "\n", ".", "1"] {
                    let run = character.repeat(length);
                    check(&format!("{around}{run}{around}"));
                    check(&format!("\n{run}\n{run}b"));
                }
            }
        }
    }

    #[test]
    fn marks_are_seen_wherever_they_are() {
        for at in 0..300 {
            for filler in ["x", " ", "a b 1 ", "中"] {
                let mut text = filler.repeat(60)[..].chars().collect::<Vec<_>>();
                let scan = |text: &[char]| Scan(&text.iter().collect::<String>(), Pattern::Qwen2, true).run();
                assert!(scan(&text).is_some());
                let place = at % text.len();
                text[place] = '\u{301}';
                assert!(scan(&text).is_none(), "{filler:?} at {place}");
            }
        }
    }
}
