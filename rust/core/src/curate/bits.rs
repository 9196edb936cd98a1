//! What the metrics ask of the bytes of a text, read in one pass: a bit for each byte, and sums.

use super::classes::{Classes, DIGIT, LETTER, SPACE, SYMBOL, UPPER};
use crate::simd::{BLOCK, Work, block_at, looks};

/// Bits of the bytes of a text; of a character of several bytes that of the first, but for `space`, which all have, and
/// `continues`, which all others have.
#[derive(Default)]
pub(super) struct Bits {
    /// White space, and what is behind the end.
    pub(super) space: Vec<u64>,
    pub(super) newline: Vec<u64>,
    /// Its lower case is something else.
    pub(super) upper: Vec<u64>,
    pub(super) colon: Vec<u64>,
    pub(super) dot: Vec<u64>,
    pub(super) continues: Vec<u64>,
}

/// Characters of a text by what they are.
#[derive(Default)]
pub(super) struct Sums {
    pub(super) all: usize,
    pub(super) space: usize,
    /// ASCII letters and digits, line feeds and `?!,.`.
    pub(super) plain: usize,
    pub(super) symbol: usize,
    pub(super) digit: usize,
    pub(super) hash: usize,
    /// U+2026.
    pub(super) ellipsis: usize,
    pub(super) newline: usize,
    pub(super) words: usize,
    /// Words that have a letter.
    pub(super) alpha: usize,
}

/// Reads a text into `bits`.
pub(super) struct Read<'a> {
    pub(super) text: &'a str,
    pub(super) classes: &'static Classes,
    pub(super) bits: &'a mut Bits,
}

impl Work for Read<'_> {
    type Output = Sums;

    #[inline(always)]
    fn run(self) -> Sums {
        let Self { text, classes, bits } = self;
        let bytes = text.as_bytes();
        bits.clear();
        let mut sums = Sums { all: bytes.len(), ..Sums::default() };
        let count = |bits: u64| bits.count_ones() as usize;
        // White space that goes on in the next block; whether a word does, and has had a letter.
        let (mut over, mut goes_on, mut had) = (0, 0, false);
        for base in (0..=bytes.len()).step_by(BLOCK) {
            let block = looks(&block_at(bytes, base));
            let within = if bytes.len() - base < BLOCK { (1 << (bytes.len() - base)) - 1 } else { u64::MAX };
            let (mut letter, mut upper, mut space) = (block.lower | block.upper, block.upper, block.space | over);
            over = 0;
            sums.space += count(block.space);
            sums.plain += count(letter | block.digit | block.newline | block.mark | block.dot);
            sums.symbol += count(within & !(letter | block.digit | block.space | block.high));
            sums.digit += count(block.digit);
            sums.hash += count(block.hash);
            sums.newline += count(block.newline);
            if block.high != 0 {
                sums.all -= count(block.continues);
                let mut leads = block.high & !block.continues;
                while leads != 0 {
                    let place = leads.trailing_zeros();
                    leads &= leads - 1;
                    let Some(character) = text[base + place as usize..].chars().next() else { continue };
                    let class = classes.of(character);
                    letter |= u64::from(class & LETTER != 0) << place;
                    upper |= u64::from(class & UPPER != 0) << place;
                    sums.symbol += usize::from(class & SYMBOL != 0);
                    sums.digit += usize::from(class & DIGIT != 0);
                    sums.ellipsis += usize::from(character == '…');
                    if class & SPACE != 0 {
                        sums.space += 1;
                        let all = ((1_u128 << character.len_utf8()) - 1) << place;
                        space |= all as u64;
                        over |= (all >> BLOCK) as u64;
                    }
                }
            }
            space |= !within;
            let word = !space;
            let shifted = word << 1 | goes_on;
            goes_on = word >> 63;
            sums.words += count(word & !shifted);
            // As a number, a run of ones and any of its bits make a carry, which ends where the run does.
            let (sum, first) = word.overflowing_add(letter & word);
            let (sum, second) = sum.overflowing_add(u64::from(had));
            sums.alpha += count(sum & shifted & space);
            had = first | second;
            bits.space.push(space);
            bits.newline.push(block.newline);
            bits.upper.push(upper);
            bits.colon.push(block.colon);
            bits.dot.push(block.dot);
            bits.continues.push(block.continues);
        }
        sums
    }
}

impl Bits {
    fn all(&mut self) -> [&mut Vec<u64>; 6] {
        let Self { space, newline, upper, colon, dot, continues } = self;
        [space, newline, upper, colon, dot, continues]
    }

    fn clear(&mut self) {
        self.all().into_iter().for_each(Vec::clear);
    }

    pub(super) fn shrink(&mut self, limit: usize) {
        self.clear();
        self.all().into_iter().for_each(|bits| bits.shrink_to(limit / BLOCK));
    }

    /// Bytes from `start` to the first white space before `end`, if there is any other; and the end of the last such.
    #[inline]
    pub(super) fn visible(&self, start: usize, end: usize) -> Option<(usize, usize)> {
        let first = next_clear(&self.space, start, end)?;
        let mut place = (end - 1) / BLOCK;
        let mut left = !self.space[place] & (u64::MAX >> (BLOCK - 1 - (end - 1) % BLOCK));
        while left == 0 {
            place -= 1;
            left = !self.space[place];
        }
        Some((first, place * BLOCK + BLOCK - left.leading_zeros() as usize))
    }
}

/// The first bit in [from, end) that is clear. No further one is looked at: there may be a million short lines.
fn next_clear(bits: &[u64], from: usize, end: usize) -> Option<usize> {
    let mut place = from / BLOCK;
    let mut left = !bits.get(place)? & (u64::MAX << (from % BLOCK));
    while left == 0 {
        place += 1;
        if place * BLOCK >= end {
            return None;
        }
        left = !*bits.get(place)?;
    }
    Some(place * BLOCK + left.trailing_zeros() as usize).filter(|&first| first < end)
}

/// The bits of some bytes, one of `BLOCK` bytes at a time.
#[inline(always)]
pub(super) fn parts(bits: &[u64], start: usize, end: usize) -> impl Iterator<Item = u64> {
    let (first, last) = (start / BLOCK, (end - 1) / BLOCK);
    bits[first..=last].iter().zip(first..).map(move |(&part, place)| {
        let from = if place == first { u64::MAX << (start % BLOCK) } else { u64::MAX };
        let to = if place == last { u64::MAX >> (BLOCK - 1 - (end - 1) % BLOCK) } else { u64::MAX };
        part & from & to
    })
}

/// Whether any of some bytes has its bit.
#[inline(always)]
pub(super) fn any(bits: &[u64], start: usize, end: usize) -> bool {
    let place = start / BLOCK;
    if (end - 1) / BLOCK == place {
        return bits[place] >> (start % BLOCK) & (u64::MAX >> (BLOCK - (end - start))) != 0;
    }
    parts(bits, start, end).any(|part| part != 0)
}

/// How many of some bytes have their bit.
#[inline(always)]
pub(super) fn count(bits: &[u64], start: usize, end: usize) -> usize {
    parts(bits, start, end).map(|part| part.count_ones() as usize).sum()
}
