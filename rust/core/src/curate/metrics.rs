//! Metrics of raw texts: lengths, shares of characters, words and lines, repetition.
//!
//! White space, letters and digits are those of Python's `str`, by Unicode 16. All metrics are exact but for collisions of
//! 64-bit hashes.

use std::ops::Range;

use xxhash_rust::xxh3::xxh3_64;

use super::classes::{Classes, DIGIT, LETTER, SPACE, SYMBOL, UPPER};
use super::counts::Set;
use super::repetition::{Asked, GRAM, KEPT, Repetition, gram_of};
use super::text::{Tokens, light};

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
const DUP_LINE: usize = 20;
const DUP_PARA: usize = 22;
const TOP_2: usize = 24;
const DUP_5: usize = 27;
const CHAR_REP: usize = 33;
const WORD_REP: usize = 34;

const SHORT_LINE: usize = 30;
const STOP_WORDS: [&[u8]; 8] = [b"the", b"be", b"to", b"of", b"and", b"that", b"have", b"with"];
const TERMINALS: [&str; 11] = [".", "!", "?", "。", "！", "？", "…", "\"", "'", "”", "’"];

// Flags of a byte or a word, beyond those of `classes`.
const COLON: u8 = 32;
const DOT: u8 = 64;
/// The first byte of a character of several bytes.
const LEAD: u8 = 128;

// 8 counters of 8 bits, added up over at most 255 bytes. The one at bit 40 stays 0: an ellipsis has several bytes.
const LANE_SPACE: u64 = 1;
const LANE_PLAIN: u64 = 1 << 8;
const LANE_SYMBOL: u64 = 1 << 16;
const LANE_DIGIT: u64 = 1 << 24;
const LANE_HASH: u64 = 1 << 32;
const LANE_NEWLINE: u64 = 1 << 48;
/// The byte continues a character.
const LANE_CONTINUES: u64 = 1 << 56;
const RUN: usize = 255;

/// Measures texts, one after another.
pub struct Meter {
    wanted: u64,
    classes: &'static Classes,
    /// Of a byte: lanes; a leading byte has none, its character is looked up.
    lanes: [u64; 256],
    flags: [u8; 256],
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

/// The line that is being read.
#[derive(Default)]
struct Line {
    /// Its first character.
    start: usize,
    /// Where its last word begins and ends, in bytes.
    last: Option<(usize, usize)>,
    bullet: bool,
}

/// What one pass over the words of a text counts.
#[derive(Default)]
struct Tally {
    words: usize,
    word_chars: usize,
    longest: usize,
    alpha: usize,
    url_chars: usize,
    dots: usize,
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
        let classes = Classes::get();
        let mut lanes = [0; 256];
        let mut flags = [0; 256];
        for byte in 0..=255_u8 {
            let at = usize::from(byte);
            (lanes[at], flags[at]) = match byte {
                0..128 => {
                    let class = classes.ascii()[at];
                    let mut lane = lanes_of(class);
                    if byte.is_ascii_alphanumeric() || b"\n?!,.".contains(&byte) {
                        lane += LANE_PLAIN;
                    }
                    lane += match byte {
                        b'#' => LANE_HASH,
                        b'\n' => LANE_NEWLINE,
                        _ => 0,
                    };
                    let flag = match byte {
                        b':' => COLON,
                        b'.' => DOT,
                        _ => 0,
                    };
                    (lane, flag | class & (SPACE | LETTER | UPPER))
                }
                128..192 => (LANE_CONTINUES, 0),
                _ => (0, LEAD),
            };
        }
        Self {
            wanted,
            classes,
            lanes,
            flags,
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
        let lanes = self.lanes_of_text(text);
        let n = text.len() - lanes[7];
        let tally = self.tally(text, n == text.len());
        let of = |part: usize, whole: usize| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        let (words, lines) = (tally.words, tally.lines);
        let empty = if n == 0 { 1.0 } else { 0.0 };
        let (line, para) = (&tally.line_repeats, &tally.para_repeats);
        let first = [
            n as f64,
            text.len() as f64,
            words as f64,
            lines as f64,
            1.0 - of(lanes[1], n),
            of(lanes[2], n),
            of(lanes[3], n) + empty,
            of(tally.url_chars, n) + empty,
            of(lanes[0], n) + empty,
            of(tally.word_chars, words),
            tally.longest as f64,
            of(tally.alpha, words),
            of(lanes[4], words),
            of(tally.dots + lanes[5], words),
            f64::from(tally.stop.count_ones()),
            of(tally.bullets, lines),
            of(tally.ellipses, lines),
            of(tally.terminals, lines),
            of(tally.short, lines),
            of(lanes[6], words),
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
        &self.values
    }

    /// Counts of characters by lane.
    fn lanes_of_text(&self, text: &str) -> [usize; 8] {
        let mut sums = [0; 8];
        for run in text.as_bytes().chunks(RUN) {
            let sum = run.iter().fold(0_u64, |sum, &byte| sum + self.lanes[usize::from(byte)]);
            for (lane, byte) in sums.iter_mut().zip(sum.to_le_bytes()) {
                *lane += usize::from(byte);
            }
        }
        if sums[7] == 0 {
            return sums;
        }
        for (at, _) in text.bytes().enumerate().filter(|&(_, byte)| byte >= 0xC0) {
            let Some(character) = text[at..].chars().next() else { continue };
            let class = self.classes.of(character);
            for (flag, lane) in [(SPACE, 0), (SYMBOL, 2), (DIGIT, 3)] {
                sums[lane] += usize::from(class & flag != 0);
            }
            sums[5] += usize::from(character == '…');
        }
        sums
    }

    /// Read the words and lines of a text; keep of the words what grams need.
    fn tally(&mut self, text: &str, ascii: bool) -> Tally {
        let bytes = text.as_bytes();
        let split_lines = self.wants_any(DUP_LINE..DUP_PARA);
        let split_paragraphs = self.wants_any(DUP_PARA..TOP_2);
        self.repetition.begin(text, ascii);
        self.pieces.clear(0);
        self.paragraphs.clear(0);

        let mut tally = Tally::default();
        let mut line = Line::default();
        // Bytes so far that continue a character.
        let mut continues = 0;
        let (mut piece, mut paragraph) = (0, 0);
        let mut last_end = 0;
        let mut at = 0;
        while at < bytes.len() {
            // White space before a word.
            let gap = at;
            let mut newlines = 0;
            while at < bytes.len() {
                let byte = bytes[at];
                let flags = self.flags[usize::from(byte)];
                if flags & LEAD != 0 {
                    let (class, length) = self.class_at(text, at);
                    if class & SPACE == 0 {
                        break;
                    }
                    at += length;
                    continues += length - 1;
                    continue;
                }
                if flags & SPACE == 0 {
                    break;
                }
                if byte == b'\n' {
                    newlines += 1;
                    tally.end_line(bytes, &line, at - continues);
                    line = Line { start: at + 1 - continues, ..Line::default() };
                    if split_lines {
                        if at == 0 || bytes[at - 1] != b'\n' {
                            tally.line_repeats.add(&mut self.pieces, &bytes[piece..at]);
                        }
                        piece = at + 1;
                    }
                }
                at += 1;
            }
            if at == bytes.len() {
                break;
            }
            if tally.words == 0 {
                paragraph = at;
            } else if newlines > 1 && split_paragraphs {
                paragraph = split(&bytes[..at], paragraph, gap, |piece| {
                    tally.para_repeats.add(&mut self.paragraphs, piece);
                });
            }

            let start = at;
            let continues_before = continues;
            let mut flags = 0;
            while at < bytes.len() {
                let byte = bytes[at];
                let flag = self.flags[usize::from(byte)];
                if flag & (SPACE | LEAD) != 0 {
                    if flag & SPACE != 0 {
                        break;
                    }
                    let (class, length) = self.class_at(text, at);
                    if class & SPACE != 0 {
                        break;
                    }
                    flags |= class & (LETTER | UPPER) | LEAD;
                    at += length;
                    continues += length - 1;
                    continue;
                }
                flags |= flag;
                at += 1;
            }
            let word = &bytes[start..at];
            let chars = word.len() - (continues - continues_before);
            last_end = at;
            tally.words += 1;
            tally.word_chars += chars;
            tally.longest = tally.longest.max(chars);
            tally.alpha += usize::from(flags & LETTER != 0);
            if line.last.is_none() {
                line.bullet = matches!(word[0], b'-' | b'*') || word.starts_with("•".as_bytes());
            }
            line.last = Some((start, at));
            if flags & COLON != 0 {
                tally.url_chars += url_bytes(word);
            }
            if flags & DOT != 0 && word.len() > 2 {
                tally.dots += ellipses(word);
            }
            if word.len() <= 4 && flags & (UPPER | LEAD) == 0 {
                for (stop, bit) in STOP_WORDS.iter().zip(0..) {
                    tally.stop |= u8::from(*stop == word) << bit;
                }
            }
            self.repetition.push(&text[start..at], flags & UPPER != 0);
        }
        tally.end_line(bytes, &line, bytes.len() - continues);
        if tally.line_repeats.pieces > 0 {
            tally.line_repeats.add(&mut self.pieces, &bytes[piece..]);
        }
        if tally.para_repeats.pieces > 0 {
            tally.para_repeats.add(&mut self.paragraphs, &bytes[paragraph..last_end]);
        }
        for set in [&mut self.pieces, &mut self.paragraphs] {
            set.shrink(2 * KEPT);
        }
        tally
    }

    /// The class and the bytes of a character of several bytes.
    #[inline]
    fn class_at(&self, text: &str, at: usize) -> (u8, usize) {
        text[at..].chars().next().map_or((0, 1), |character| (self.classes.of(character), character.len_utf8()))
    }
}

impl Tally {
    /// Count a line whose last character is before `end`.
    fn end_line(&mut self, bytes: &[u8], line: &Line, end: usize) {
        let Some((start, last)) = line.last else { return };
        let word = &bytes[start..last];
        self.lines += 1;
        self.short += usize::from(end - line.start <= SHORT_LINE);
        self.bullets += usize::from(line.bullet);
        self.ellipses += usize::from(word.ends_with(b"...") || word.ends_with("…".as_bytes()));
        self.terminals += usize::from(TERMINALS.iter().any(|mark| word.ends_with(mark.as_bytes())));
    }
}

fn any(wanted: u64, metrics: Range<usize>) -> bool {
    metrics.into_iter().any(|metric| wanted >> metric & 1 == 1)
}

fn lanes_of(class: u8) -> u64 {
    [(SPACE, LANE_SPACE), (SYMBOL, LANE_SYMBOL), (DIGIT, LANE_DIGIT)]
        .into_iter()
        .filter(|(flag, _)| class & flag != 0)
        .map(|(_, lane)| lane)
        .sum()
}

fn chars_of(bytes: &[u8]) -> usize {
    bytes.iter().filter(|&&byte| byte & 0xC0 != 0x80).count()
}

/// Hand on the paragraphs that runs of two and more line feeds from `gap` on end. Returns where the next begins.
fn split(bytes: &[u8], mut paragraph: usize, gap: usize, mut add: impl FnMut(&[u8])) -> usize {
    let mut at = gap;
    while at < bytes.len() {
        let run = bytes[at..].iter().take_while(|&&byte| byte == b'\n').count();
        if run > 1 {
            add(&bytes[paragraph..at]);
            paragraph = at + run;
        }
        at += run.max(1);
    }
    paragraph
}

/// Bytes of a word in matches of `https?://` and one or more characters of a URL, all of which are ASCII.
fn url_bytes(word: &[u8]) -> usize {
    let mut total = 0;
    let mut at = 0;
    while at < word.len() {
        let rest = &word[at..];
        let scheme = [&b"http://"[..], b"https://"].into_iter().find(|scheme| rest.starts_with(scheme));
        let Some(scheme) = scheme else {
            at += 1;
            continue;
        };
        let mut end = scheme.len();
        loop {
            match rest.get(end) {
                Some(byte) if byte.is_ascii_alphanumeric() || b"$-_@.&+/:=?#~!*(),".contains(byte) => end += 1,
                Some(b'%') if rest.get(end + 1..end + 3).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit)) => {
                    end += 3;
                }
                _ => break,
            }
        }
        if end > scheme.len() {
            total += end;
        }
        at += end;
    }
    total
}

/// Occurrences of `...` that do not overlap.
fn ellipses(word: &[u8]) -> usize {
    word.split(|&byte| byte != b'.').map(|dots| dots.len() / 3).sum()
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
