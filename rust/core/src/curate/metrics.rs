//! Metrics of raw texts: lengths, shares of characters, words and lines, repetition.
//!
//! White space, letters and digits are those of Python's `str`, by Unicode 16. All metrics are exact but for collisions of
//! 64-bit hashes.

use xxhash_rust::xxh3::xxh3_64;

use super::classes::{Classes, DIGIT, LETTER, SPACE, SYMBOL, UPPER};
use super::counts::{Counts, Filter, Set, mixed};
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

/// Words or characters in a gram of `word_rep_ratio` and `char_rep_ratio`.
const GRAM: usize = 10;
const SHORT_LINE: usize = 30;
/// First bytes of n-grams that are compared before the grams are.
const BEGINNING: usize = 16;
const STOP_WORDS: [&[u8]; 8] = [b"the", b"be", b"to", b"of", b"and", b"that", b"have", b"with"];
const TERMINALS: [&str; 11] = [".", "!", "?", "。", "！", "？", "…", "\"", "'", "”", "’"];

// Flags of a byte or a word, beyond those of `classes`.
const COLON: u8 = 32;
const DOT: u8 = 64;
/// The first byte of a character of several bytes.
const LEAD: u8 = 128;

/// 10-grams of characters that are counted at once. More are counted in several passes over the text, so that memory does
/// not follow the text: one of 64 MiB would take 2 GiB.
const MOST_AT_ONCE: usize = 1 << 22;
/// What buffers keep for the next text.
const KEPT: usize = 1 << 20;

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
    words: Words,
    lowered: String,
    pieces: Set,
    paragraphs: Set,
    seen: Set,
    counts: Counts,
    filter: Filter,
    grams: Vec<u64>,
    positions: Vec<u32>,
}

/// What the n-grams of words need.
#[derive(Default)]
struct Words {
    /// A hash of each word.
    hashes: Vec<u64>,
    /// A hash of each word in lower case.
    lower: Vec<u64>,
    /// The words without anything between them.
    joined: Vec<u8>,
    /// Bytes of all words before each word; one more at the end.
    starts: Vec<u32>,
    /// Characters of all words before each word; one more at the end.
    chars: Vec<u32>,
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
                    let class = classes.ascii[at];
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
            words: Words::default(),
            lowered: String::new(),
            pieces: Set::default(),
            paragraphs: Set::default(),
            seen: Set::default(),
            counts: Counts::default(),
            filter: Filter::default(),
            grams: Vec::new(),
            positions: Vec::new(),
        }
    }

    fn wants(&self, metric: usize) -> bool {
        self.wanted >> metric & 1 == 1
    }

    fn wants_any(&self, metrics: std::ops::Range<usize>) -> bool {
        metrics.into_iter().any(|metric| self.wants(metric))
    }

    /// The metrics of a text, by number. Those that are not wanted may be 0.
    pub fn measure(&mut self, text: &str) -> &[f64; COUNT] {
        let lanes = self.lanes_of_text(text);
        let n = text.len() - lanes[7];
        let tally = self.tally(text);
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
            let tops = self.tops().map(|chars| of(chars, n));
            self.values[TOP_2..DUP_5].copy_from_slice(&tops);
        }
        if self.wants_any(DUP_5..CHAR_REP) {
            self.find_repeats();
            for size in 5..=10 {
                self.values[DUP_5 + size - 5] = of(self.repeated(size), n);
            }
        }
        if self.wants(WORD_REP) {
            self.values[WORD_REP] = of(self.repeated_lower(), (words + 1).saturating_sub(GRAM));
        }
        if self.wants(CHAR_REP) {
            let grams = (n + 1).saturating_sub(GRAM);
            self.values[CHAR_REP] = of(self.repeated_characters(text, n == text.len(), grams), grams);
        }
        self.shrink();
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
    fn tally(&mut self, text: &str) -> Tally {
        let bytes = text.as_bytes();
        let keep_grams = self.wants_any(TOP_2..DUP_5);
        let keep_joined = self.wants_any(DUP_5..CHAR_REP);
        let keep_lower = self.wants(WORD_REP);
        let split_lines = self.wants_any(DUP_LINE..DUP_PARA);
        let split_paragraphs = self.wants_any(DUP_PARA..TOP_2);
        self.words.clear();
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
            if keep_grams || keep_lower {
                let key = xxh3_64(word);
                if keep_grams {
                    self.words.hashes.push(key);
                }
                if keep_lower {
                    let key = if flags & UPPER == 0 { key } else { self.lower_hash(&text[start..at]) };
                    self.words.lower.push(key);
                }
            }
            if keep_joined {
                self.words.joined.extend_from_slice(word);
                self.words.starts.push(self.words.joined.len() as u32);
            }
            if keep_grams || keep_joined {
                self.words.chars.push(tally.word_chars as u32);
            }
        }
        tally.end_line(bytes, &line, bytes.len() - continues);
        if tally.line_repeats.pieces > 0 {
            tally.line_repeats.add(&mut self.pieces, &bytes[piece..]);
        }
        if tally.para_repeats.pieces > 0 {
            tally.para_repeats.add(&mut self.paragraphs, &bytes[paragraph..last_end]);
        }
        tally
    }

    /// The class and the bytes of a character of several bytes.
    #[inline]
    fn class_at(&self, text: &str, at: usize) -> (u8, usize) {
        text[at..].chars().next().map_or((0, 1), |character| (self.classes.of(character), character.len_utf8()))
    }

    /// The hash of a word in lower case.
    fn lower_hash(&mut self, word: &str) -> u64 {
        self.lowered.clear();
        if word.is_ascii() {
            self.lowered.push_str(word);
            self.lowered.make_ascii_lowercase();
        } else if word.contains('Σ') {
            // Its lower case follows its neighbours.
            self.lowered.push_str(&word.to_lowercase());
        } else {
            for character in word.chars() {
                if self.classes.of(character) & UPPER == 0 {
                    self.lowered.push(character);
                } else {
                    self.lowered.extend(character.to_lowercase());
                }
            }
        }
        xxh3_64(self.lowered.as_bytes())
    }

    /// Characters that the most frequent n-gram of words takes, with single blanks; the first of equally frequent ones.
    /// All three sizes at once: a repeated n-gram begins with a repeated (n−1)-gram.
    fn tops(&mut self) -> [usize; 3] {
        let hashes = &self.words.hashes;
        self.positions.clear();
        self.positions.extend(0..hashes.len() as u32);
        [2, 3, 4].map(|size| {
            let grams = (hashes.len() + 1).saturating_sub(size);
            if grams == 0 {
                return 0;
            }
            let in_text = self.positions.partition_point(|&at| (at as usize) < grams);
            self.positions.truncate(in_text);
            let gram_at = |at: u32| hashes[at as usize..at as usize + size].iter().copied().fold(0, appended);
            self.grams.clear();
            self.grams.extend(self.positions.iter().map(|&at| gram_at(at)));
            self.filter.read(&self.grams);
            let mut kept = 0;
            for at in 0..self.grams.len() {
                let gram = self.grams[at];
                self.grams[kept] = gram;
                self.positions[kept] = self.positions[at];
                kept += usize::from(self.filter.has_twice(gram));
            }
            self.grams.truncate(kept);
            self.positions.truncate(kept);

            let mut best = (1, 0);
            self.counts.clear(kept / 2);
            for (&gram, &at) in self.grams.iter().zip(&self.positions) {
                let (count, first) = self.counts.add(gram, at);
                if count > best.0 || count == best.0 && first < best.1 {
                    best = (count, first);
                }
            }
            let first = best.1 as usize;
            (self.words.chars_of(first, first + size) + size - 1) * best.0 as usize
        })
    }

    /// Set `positions` to the words at which a repeated n-gram of five or more words can begin.
    ///
    /// Without blanks, equal grams may be cut into words in different places. Their first bytes are equal all the same.
    fn find_repeats(&mut self) {
        let Words { joined, starts, .. } = &mut self.words;
        let end = joined.len();
        joined.resize(end + BEGINNING, 0);
        self.grams.clear();
        self.grams.extend(starts.iter().map(|&start| hash_of_ends::<BEGINNING>(&joined[start as usize..])));
        joined.truncate(end);
        self.filter.read(&self.grams);
        self.positions.clear();
        let fives = starts.len().saturating_sub(5);
        for at in 0..fives {
            if self.filter.has_twice(self.grams[at]) || ((starts[at + 5] - starts[at]) as usize) < BEGINNING {
                self.positions.push(at as u32);
            }
        }
    }

    /// Characters of repeated n-grams of words, as the scan from left to right finds them.
    fn repeated(&mut self, size: usize) -> usize {
        let words = &self.words;
        let grams = words.starts.len().saturating_sub(size);
        self.seen.clear(0);
        let (mut next, mut chars) = (0, 0);
        for &at in &self.positions {
            let at = at as usize;
            if at >= grams {
                break;
            }
            let bytes = words.starts[at] as usize..words.starts[at + size] as usize;
            if at >= next && !self.seen.insert(xxh3_64(&words.joined[bytes])) {
                chars += words.chars_of(at, at + size);
                next = at + size;
            }
        }
        chars
    }

    /// Occurrences of 10-grams of words in lower case that occur more than once.
    fn repeated_lower(&mut self) -> usize {
        let words = &self.words.lower;
        self.grams.clear();
        let mut gram = words.iter().take(GRAM - 1).copied().fold(0, appended);
        for (&oldest, &newest) in words.iter().zip(words.iter().skip(GRAM - 1)) {
            gram = appended(gram, newest);
            self.grams.push(gram);
            gram = gram.wrapping_sub(oldest.wrapping_mul(LEAVING));
        }
        self.count_repeated();
        self.counts.repeated().iter().map(|&count| count as usize).sum()
    }

    /// Set `counts` to the counts of those of `grams` that may occur more than once. Returns how many others there are.
    fn count_repeated(&mut self) -> usize {
        self.filter.read(&self.grams);
        let all = self.grams.len();
        let kept = self.filter.keep(&mut self.grams);
        self.counts.clear(kept / 2);
        for &gram in &self.grams[..kept] {
            self.counts.add(gram, 0);
        }
        all - kept
    }

    /// The sum of the k largest counts of 10-grams of characters, k the root of how many are distinct.
    fn repeated_characters(&mut self, text: &str, ascii: bool, grams: usize) -> usize {
        let mut distinct = 0;
        let mut small = [0_usize; 256];
        let mut large = Vec::new();
        let parts = grams.div_ceil(MOST_AT_ONCE).next_power_of_two();
        for part in 0..parts {
            self.grams.clear();
            let once = if parts > 1 {
                self.counts.clear(0);
                let mut count = |gram| {
                    if mixed(gram) as usize & (parts - 1) == part {
                        self.counts.add(gram, 0);
                    }
                };
                if ascii {
                    text.as_bytes().windows(GRAM).map(hash_of_ends::<GRAM>).for_each(count);
                } else {
                    character_grams(text, &mut count);
                }
                0
            } else {
                if ascii {
                    self.grams.extend(text.as_bytes().windows(GRAM).map(hash_of_ends::<GRAM>));
                } else {
                    character_grams(text, |gram| self.grams.push(gram));
                }
                self.count_repeated()
            };
            distinct += once + self.counts.distinct();
            for count in self.counts.repeated().iter().map(|&count| count as usize) {
                match small.get_mut(count) {
                    Some(small) => *small += 1,
                    None => large.push(count),
                }
            }
        }
        let mut left = distinct.isqrt();
        large.sort_unstable_by(|left, right| right.cmp(left));
        let mut sum: usize = large.iter().take(left).sum();
        left = left.saturating_sub(large.len());
        for (count, &number) in small.iter().enumerate().rev() {
            let taken = number.min(left);
            sum += taken * count;
            left -= taken;
        }
        sum
    }

    /// Give back what only a very long text needs.
    fn shrink(&mut self) {
        self.words.hashes.shrink_to(KEPT);
        self.words.lower.shrink_to(KEPT);
        self.words.chars.shrink_to(KEPT);
        self.words.joined.shrink_to(KEPT);
        self.words.starts.shrink_to(KEPT);
        self.grams.shrink_to(KEPT);
        self.positions.shrink_to(KEPT);
        self.filter.shrink(KEPT);
        self.lowered.shrink_to(KEPT);
        for set in [&mut self.pieces, &mut self.paragraphs, &mut self.seen] {
            set.shrink(2 * KEPT);
        }
        self.counts.shrink(2 * KEPT);
    }
}

impl Words {
    fn clear(&mut self) {
        self.hashes.clear();
        self.lower.clear();
        self.joined.clear();
        self.chars.clear();
        self.chars.push(0);
        self.starts.clear();
        self.starts.push(0);
    }

    fn chars_of(&self, first: usize, last: usize) -> usize {
        (self.chars[last] - self.chars[first]) as usize
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

fn lanes_of(class: u8) -> u64 {
    [(SPACE, LANE_SPACE), (SYMBOL, LANE_SYMBOL), (DIGIT, LANE_DIGIT)]
        .into_iter()
        .filter(|(flag, _)| class & flag != 0)
        .map(|(_, lane)| lane)
        .sum()
}

const FACTOR: u64 = 0xD134_2543_DE82_EF95;
/// The factor of the oldest of ten words.
const LEAVING: u64 = FACTOR.wrapping_pow(GRAM as u32 - 1);

#[inline]
fn appended(gram: u64, word: u64) -> u64 {
    gram.wrapping_mul(FACTOR).wrapping_add(word)
}

/// The hash of the `N` bytes, 8 to 16, at the beginning of at least as many.
#[inline(always)]
fn hash_of_ends<const N: usize>(bytes: &[u8]) -> u64 {
    let (Some(first), Some(last)) = (bytes[..N].first_chunk(), bytes[..N].last_chunk()) else { return 0 };
    let first = u64::from_le_bytes(*first) ^ 0xA076_1D64_78BD_642F;
    let last = u64::from_le_bytes(*last).rotate_left(32) ^ 0xE703_7ED1_A0B4_28DB;
    let product = u128::from(first) * u128::from(last);
    (product as u64) ^ (product >> 64) as u64
}

#[inline]
fn character_grams(text: &str, mut push: impl FnMut(u64)) {
    let mut ring = [0; GRAM];
    let mut place = 0;
    let mut gram = 0_u64;
    for (at, character) in text.chars().enumerate() {
        let new = mixed(u64::from(character) + 1);
        let old = std::mem::replace(&mut ring[place], new);
        place = if place == GRAM - 1 { 0 } else { place + 1 };
        gram = appended(gram.wrapping_sub(old.wrapping_mul(LEAVING)), new);
        if at >= GRAM - 1 {
            push(gram);
        }
    }
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
    /// The share of the response's 3-grams of tokens that the instruction has, or 0.
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
}

impl PairMeter {
    /// The metrics of a pair.
    pub fn measure(&mut self, instruction: &str, response: &str) -> Pair {
        for (text, hashes) in [(instruction, &mut self.instruction), (response, &mut self.response)] {
            self.tokens.read(text);
            hashes.clear();
            hashes.extend(self.tokens.iter().map(|token| xxh3_64(token.as_bytes())));
        }
        let gram = |tokens: &[u64]| tokens.iter().fold(0, |gram, &token| appended(gram, token));
        let given = self.instruction.windows(COPIED);
        self.grams.clear(given.len());
        for tokens in given {
            self.grams.insert(gram(tokens));
        }
        let grams = self.response.windows(COPIED);
        let (all, copied) = (grams.len(), grams.filter(|tokens| self.grams.has(gram(tokens))).count());
        let ratio = |part: usize, whole: usize| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        let pair = Pair {
            response_instruction_ratio: ratio(self.response.len(), self.instruction.len()),
            copy_ratio: ratio(copied, all),
            same: light(instruction) == light(response),
        };
        self.instruction.shrink_to(KEPT);
        self.response.shrink_to(KEPT);
        self.grams.shrink(2 * KEPT);
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
        // Two texts of more grams than fit at once: one gram only, and a period of 1,000 different ones.
        assert_eq!(value(&"x".repeat(MOST_AT_ONCE + 100), "char_rep_ratio"), 1.0);
        let period: String = (100..350).map(|number| format!("{number},")).collect();
        let periods = MOST_AT_ONCE / 1000 + 1;
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
