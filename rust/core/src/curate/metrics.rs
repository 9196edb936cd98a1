//! Metrics of raw texts: lengths, shares of characters, words and lines, repetition.
//!
//! White space, letters and digits are those of Python's `str`, by Unicode 16. All metrics are exact but for collisions of
//! 64-bit hashes.

use std::ops::Range;

use xxhash_rust::xxh3::xxh3_64;

use super::bits::{self, Bits, Read};
use super::classes::Classes;
use super::counts::Set;
use super::repetition::{Asked, GRAM, KEPT, Repetition, Word, chars_of, gram_of};
use super::text::{Tokens, light};
use crate::simd::{BLOCK, Level, Work, next_set, run};

/// The metrics by number.
pub const NAMES: [&str; COUNT] = [
    "chars",
    "bytes",
    "words",
    "lines",
    "non_alnum_ratio",
    "symbol_ratio",
    "digit_ratio",
    "url_ratio",
    "whitespace_ratio",
    "mean_word_length",
    "max_word_length",
    "alpha_word_ratio",
    "hash_word_ratio",
    "ellipsis_word_ratio",
    "stop_words",
    "bullet_line_ratio",
    "ellipsis_line_ratio",
    "terminal_line_ratio",
    "short_line_ratio",
    "newline_word_ratio",
    "dup_line_frac",
    "dup_line_char_frac",
    "dup_para_frac",
    "dup_para_char_frac",
    "top_2gram_char_frac",
    "top_3gram_char_frac",
    "top_4gram_char_frac",
    "dup_5gram_char_frac",
    "dup_6gram_char_frac",
    "dup_7gram_char_frac",
    "dup_8gram_char_frac",
    "dup_9gram_char_frac",
    "dup_10gram_char_frac",
    "char_rep_ratio",
    "word_rep_ratio",
];

/// How many metrics there are.
pub const COUNT: usize = 35;

/// All metrics, for `Meter::new`.
pub const ALL: u64 = (1 << COUNT) - 1;

/// Whether a metric is a whole number.
pub fn is_integer(metric: usize) -> bool {
    matches!(NAMES[metric], "chars" | "bytes" | "words" | "lines" | "max_word_length" | "stop_words")
}

// The metrics that take time of their own, by number.
const LINES: usize = 3;
const DUP_LINE: usize = 20;
const DUP_PARA: usize = 22;
const TOP_2: usize = 24;
const DUP_5: usize = 27;
const CHAR_REP: usize = 33;
const WORD_REP: usize = 34;

const SHORT_LINE: usize = 30;
/// Blocks of a text whose words are looked at together.
const PART: usize = 16;
const STOP_WORDS: [&[u8]; 8] = [b"the", b"be", b"to", b"of", b"and", b"that", b"have", b"with"];
/// By it the beginnings of the stop words have products whose first three bits differ.
const STOP_FACTOR: u64 = 0xC42D_DDC2_2F41_F7CD;
const TERMINALS: [&str; 6] = ["。", "！", "？", "…", "”", "’"];

/// Measures texts, one after another.
pub struct Meter {
    wanted: u64,
    classes: &'static Classes,
    level: Level,
    bits: Bits,
    /// By the first bits of the product of a word's beginning: the beginning and length of a stop word.
    stops: [(u64, usize); 8],
    /// Where words of a part begin and end.
    turns: Vec<u32>,
    values: [f64; COUNT],
    pieces: Set,
    paragraphs: Set,
    repetition: Repetition,
}

/// Repeats of earlier pieces of a text.
#[derive(Default)]
struct Repeats {
    pieces: usize,
    repeated: usize,
    chars: usize,
}

impl Repeats {
    fn add(&mut self, set: &mut Set, piece: &[u8]) {
        self.pieces += 1;
        if !set.insert(xxh3_64(piece)) {
            self.repeated += 1;
            self.chars += chars_of(piece);
        }
    }
}

/// What is counted of the words and lines of a text.
#[derive(Default)]
struct Tally {
    ascii: bool,
    longest: usize,
    stop: u8,
    lines: usize,
    bullets: usize,
    ellipses: usize,
    terminals: usize,
    short: usize,
    line_repeats: Repeats,
    para_repeats: Repeats,
}

impl Default for Meter {
    fn default() -> Self {
        Self::new(ALL)
    }
}

impl Meter {
    /// Measure the metrics whose bits are set in `wanted`; what others would cost is saved where it can be.
    pub fn new(wanted: u64) -> Self {
        let mut stops = [(0, 0); 8];
        for stop in STOP_WORDS {
            let mut beginning = [0; 8];
            beginning[..stop.len()].copy_from_slice(stop);
            let beginning = u64::from_le_bytes(beginning);
            stops[slot(beginning)] = (beginning, stop.len());
        }
        Self {
            wanted,
            classes: Classes::get(),
            level: Level::best(),
            bits: Bits::default(),
            stops,
            turns: vec![0; 1 + (PART + 1) * BLOCK],
            values: [0.0; COUNT],
            pieces: Set::default(),
            paragraphs: Set::default(),
            repetition: Repetition::new(Asked {
                tops: any(wanted, TOP_2..DUP_5),
                repeats: any(wanted, DUP_5..CHAR_REP),
                lower: any(wanted, WORD_REP..COUNT),
            }),
        }
    }

    fn wants_any(&self, metrics: Range<usize>) -> bool {
        any(self.wanted, metrics)
    }

    /// The metrics of a text, by number. Those that are not wanted may be 0.
    pub fn measure(&mut self, text: &str) -> &[f64; COUNT] {
        run(self.level, Measure { meter: self, text });
        &self.values
    }

    #[inline(always)]
    fn measure_all(&mut self, text: &str) {
        let sums = Read { text, classes: self.classes, bits: &mut self.bits }.run();
        let n = sums.all;
        let mut tally = self.words(text, n == text.len());
        self.lines(text.as_bytes(), sums.newline, &mut tally);
        let urls = url_bytes(text.as_bytes(), &self.bits.colon);
        let dots = ellipses(text.as_bytes(), &self.bits.dot);
        let of = |part: usize, whole: usize| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        let (words, lines) = (sums.words, tally.lines);
        let empty = if n == 0 { 1.0 } else { 0.0 };
        let (line, para) = (&tally.line_repeats, &tally.para_repeats);
        let first = [
            n as f64,
            text.len() as f64,
            words as f64,
            lines as f64,
            1.0 - of(sums.plain, n),
            of(sums.symbol, n),
            of(sums.digit, n) + empty,
            of(urls, n) + empty,
            of(sums.space, n) + empty,
            of(n - sums.space, words),
            tally.longest as f64,
            of(sums.alpha, words),
            of(sums.hash, words),
            of(dots + sums.ellipsis, words),
            f64::from(tally.stop.count_ones()),
            of(tally.bullets, lines),
            of(tally.ellipses, lines),
            of(tally.terminals, lines),
            of(tally.short, lines),
            of(sums.newline, words),
            of(line.repeated, line.pieces),
            of(line.chars, n),
            of(para.repeated, para.pieces),
            of(para.chars, n),
        ];
        self.values[..first.len()].copy_from_slice(&first);
        if self.wants_any(TOP_2..DUP_5) {
            let tops = self.repetition.tops().map(|chars| of(chars, n));
            self.values[TOP_2..DUP_5].copy_from_slice(&tops);
        }
        if self.wants_any(DUP_5..CHAR_REP) {
            let repeats = self.repetition.repeats().map(|chars| of(chars, n));
            self.values[DUP_5..CHAR_REP].copy_from_slice(&repeats);
        }
        if self.wants_any(WORD_REP..COUNT) {
            self.values[WORD_REP] = of(self.repetition.repeated_lower(), (words + 1).saturating_sub(GRAM));
        }
        if self.wants_any(CHAR_REP..WORD_REP) {
            let grams = (n + 1).saturating_sub(GRAM);
            self.values[CHAR_REP] = of(self.repetition.repeated_characters(text, grams), grams);
        }
        self.repetition.shrink();
        self.bits.shrink(KEPT);
    }

    /// Look at the words of a text whose bits were read, and keep of them what grams need.
    #[inline(always)]
    fn words(&mut self, text: &str, ascii: bool) -> Tally {
        let Self { bits, stops, repetition, turns, .. } = self;
        let bytes = text.as_bytes();
        repetition.begin(text, ascii);
        let mut tally = Tally { ascii, ..Tally::default() };
        let (mut before, mut filled, mut base) = (1, 0, 0);
        for spaces in bits.space.chunks(PART) {
            for &space in spaces {
                let mut left = space ^ (space << 1 | before);
                before = space >> 63;
                let count = left.count_ones() as usize;
                // Eight at a time: where words end cannot be foretold.
                for eight in turns[filled..].as_chunks_mut::<8>().0.iter_mut().take(count.div_ceil(8)) {
                    for turn in eight {
                        *turn = base + left.trailing_zeros();
                        left &= left.wrapping_sub(1);
                    }
                }
                filled += count;
                base += BLOCK as u32;
            }
            let (words, rest) = turns[..filled].as_chunks();
            for &[start, end] in words {
                let (start, end) = (start as usize, end as usize);
                let beginning = Word::new(bytes, start, end).beginning();
                let chars = if ascii { end - start } else { end - start - bits::count(&bits.continues, start, end) };
                tally.longest = tally.longest.max(chars);
                let place = slot(beginning);
                tally.stop |= u8::from(stops[place] == (beginning, end - start)) << place;
            }
            repetition.push(bytes, words, |start, end| bits::any(&bits.upper, start, end));
            filled = rest.len();
            turns[0] = rest.first().copied().unwrap_or_default();
        }
        tally
    }

    /// Count the lines and paragraphs of a text whose bits were read.
    #[inline(always)]
    fn lines(&mut self, bytes: &[u8], breaks: usize, tally: &mut Tally) {
        let split_lines = self.wants_any(DUP_LINE..DUP_PARA);
        if !self.wants_any(LINES..TOP_2) {
            return;
        }
        let (first, last) = self.bits.visible(0, bytes.len()).unwrap_or_default();
        let split_paragraphs = self.wants_any(DUP_PARA..TOP_2);
        self.pieces.clear(breaks);
        self.paragraphs.clear(0);
        let (mut line, mut paragraph, mut at) = (0, first, 0);
        while let Some(start) = next_set(&self.bits.newline, at) {
            at = start + bytes[start..].iter().take_while(|&&byte| byte == b'\n').count();
            tally.line(bytes, &self.bits, line, start);
            if split_lines {
                tally.line_repeats.add(&mut self.pieces, &bytes[line..start]);
            }
            if split_paragraphs && at - start > 1 && (first..last).contains(&start) {
                tally.para_repeats.add(&mut self.paragraphs, &bytes[paragraph..start]);
                paragraph = at;
            }
            line = at;
        }
        tally.line(bytes, &self.bits, line, bytes.len());
        if tally.line_repeats.pieces > 0 {
            tally.line_repeats.add(&mut self.pieces, &bytes[line..]);
        }
        if tally.para_repeats.pieces > 0 {
            tally.para_repeats.add(&mut self.paragraphs, &bytes[paragraph..last]);
        }
        for set in [&mut self.pieces, &mut self.paragraphs] {
            set.shrink(2 * KEPT);
        }
    }
}

/// Measures a text.
struct Measure<'a> {
    meter: &'a mut Meter,
    text: &'a str,
}

impl Work for Measure<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        self.meter.measure_all(self.text);
    }
}

/// The place of a word among eight, by its first bytes.
#[inline(always)]
fn slot(beginning: u64) -> usize {
    (beginning.wrapping_mul(STOP_FACTOR) >> 61) as usize
}

impl Tally {
    /// Count a line, if there is something to see in it.
    #[inline]
    fn line(&mut self, bytes: &[u8], bits: &Bits, start: usize, end: usize) {
        let Some((first, last)) = bits.visible(start, end) else { return };
        let seen = &bytes[first..last];
        self.lines += 1;
        let short = end - start <= SHORT_LINE || !self.ascii && chars_of(&bytes[start..end]) <= SHORT_LINE;
        self.short += usize::from(short);
        self.bullets += usize::from(matches!(seen[0], b'-' | b'*') || seen.starts_with("•".as_bytes()));
        self.ellipses += usize::from(seen.ends_with(b"...") || seen.ends_with("…".as_bytes()));
        self.terminals += usize::from(match seen[seen.len() - 1] {
            b'.' | b'!' | b'?' | b'"' | b'\'' => true,
            0x80.. => TERMINALS.iter().any(|mark| seen.ends_with(mark.as_bytes())),
            _ => false,
        });
    }
}

fn any(wanted: u64, metrics: Range<usize>) -> bool {
    metrics.into_iter().any(|metric| wanted >> metric & 1 == 1)
}

/// Bytes in matches of `https?://` and one or more characters of a URL, all of which are ASCII.
fn url_bytes(bytes: &[u8], colons: &[u64]) -> usize {
    let (mut total, mut end) = (0, 0);
    while let Some(colon) = next_set(colons, end) {
        let before = &bytes[end..colon];
        let scheme = if before.ends_with(b"http") {
            4
        } else if before.ends_with(b"https") {
            5
        } else {
            0
        };
        if scheme == 0 || !bytes[colon..].starts_with(b"://") {
            // A letter before the next colon may be behind this one.
            end = colon + 1;
            continue;
        }
        end = colon + 3;
        loop {
            match bytes.get(end) {
                Some(byte) if byte.is_ascii_alphanumeric() || b"$-_@.&+/:=?#~!*(),".contains(byte) => end += 1,
                Some(b'%') if bytes.get(end + 1..end + 3).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit)) => {
                    end += 3;
                }
                _ => break,
            }
        }
        if end > colon + 3 {
            total += end - colon + scheme;
        }
    }
    total
}

/// Occurrences of `...` that do not overlap.
fn ellipses(bytes: &[u8], dots: &[u64]) -> usize {
    let (mut total, mut at) = (0, 0);
    while let Some(start) = next_set(dots, at) {
        at = start + bytes[start..].iter().take_while(|&&byte| byte == b'.').count();
        total += (at - start) / 3;
    }
    total
}

/// Tokens in a gram of `copy_ratio`.
const COPIED: usize = 3;

/// The metrics of an instruction with its response.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// Tokens of the response by tokens of the instruction, or 0.
    pub response_instruction_ratio: f64,
    /// The share of the response's distinct 3-grams of tokens that the instruction has, or 0.
    pub copy_ratio: f64,
    /// Whether the light forms are equal.
    pub same: bool,
}

/// Measures pairs, one after another.
#[derive(Default)]
pub struct PairMeter {
    tokens: Tokens,
    instruction: Vec<u64>,
    response: Vec<u64>,
    grams: Set,
    seen: Set,
}

impl PairMeter {
    /// The metrics of a pair.
    pub fn measure(&mut self, instruction: &str, response: &str) -> Pair {
        for (text, hashes) in [(instruction, &mut self.instruction), (response, &mut self.response)] {
            self.tokens.read(text);
            hashes.clear();
            hashes.extend(self.tokens.iter().map(|token| xxh3_64(token.as_bytes())));
        }
        let given = self.instruction.windows(COPIED);
        self.grams.clear(given.len());
        for tokens in given {
            self.grams.insert(gram_of(tokens));
        }
        let grams = self.response.windows(COPIED);
        self.seen.clear(grams.len());
        let (mut all, mut copied) = (0, 0);
        for gram in grams.map(gram_of) {
            if self.seen.insert(gram) {
                all += 1;
                copied += usize::from(self.grams.has(gram));
            }
        }
        let ratio = |part: usize, whole: usize| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        let pair = Pair {
            response_instruction_ratio: ratio(self.response.len(), self.instruction.len()),
            copy_ratio: ratio(copied, all),
            same: light(instruction) == light(response),
        };
        self.instruction.shrink_to(KEPT);
        self.response.shrink_to(KEPT);
        self.grams.shrink(2 * KEPT);
        self.seen.shrink(2 * KEPT);
        pair
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str, name: &str) -> f64 {
        NAMES.iter().position(|known| *known == name).map_or(f64::NAN, |metric| Meter::default().measure(text)[metric])
    }

    #[test]
    fn a_text_in_several_parts_counts_as_in_one() {
        const AT_ONCE: usize = 1 << 22;
        // Two texts of more grams than fit at once: one gram only, and a period of 1,000 different ones.
        assert_eq!(value(&"x".repeat(AT_ONCE + 100), "char_rep_ratio"), 1.0);
        let period: String = (100..350).map(|number| format!("{number},")).collect();
        let periods = AT_ONCE / 1000 + 1;
        let grams = (1000 * periods - 9) as f64;
        // 31 is the root of 1,000; all but the last 9 grams occur in every period.
        let expected = (31 * periods) as f64 / grams;
        assert_eq!(value(&period.repeat(periods), "char_rep_ratio"), expected);
        assert_eq!(value(&period.repeat(2), "char_rep_ratio"), 31.0 * 2.0 / 1991.0);
    }

    #[test]
    fn what_is_not_wanted_does_not_change_what_is() {
        let text = "The cat\n\nand THE cat\n\nand the cat... https://a.b/c #1\n- x • y\n".repeat(5);
        let all = *Meter::default().measure(&text);
        for (metric, name) in NAMES.iter().enumerate() {
            assert_eq!(Meter::new(1 << metric).measure(&text)[metric].to_bits(), all[metric].to_bits(), "{name}");
        }
    }

    #[test]
    fn a_meter_forgets_the_text_before() {
        let mut meter = Meter::default();
        let first = *meter.measure("a b c d e f g h i j k a b c d e f g h i j k\n\nx");
        meter.measure(&"é中 ".repeat(3000));
        meter.measure("");
        assert_eq!(*meter.measure("a b c d e f g h i j k a b c d e f g h i j k\n\nx"), first);
    }

    #[test]
    fn hostile_texts_take_linear_time() {
        for unit in ["http://", "https://a%", "%%", ":", "...", "\n\n ", "\n", " \n", "#", "Σ", "aΣ ", "\u{301}", "a"]
        {
            let text = unit.repeat((1 << 20) / unit.len());
            let start = std::time::Instant::now();
            assert_eq!(Meter::default().measure(&text)[1], text.len() as f64);
            // A quadratic scan takes minutes.
            assert!(start.elapsed().as_secs() < 20, "{unit}: {:?}", start.elapsed());
        }
    }
}
