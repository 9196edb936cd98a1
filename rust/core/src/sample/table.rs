//! Where planned rows are in the sampled tokens, by their number: an epoch's order becomes its arrays through this.
//!
//! An epoch asks for rows at random, and each costs a cache line that is not there; so a row's places take few bytes,
//! and one line has them all. Where rows follow each other, a line has the place of its first and the lengths of all;
//! where they do not, but each response follows its instruction, the distance of each from the first too.

use std::iter::Sum;
use std::ops::{BitAnd, Range};

use crate::pages::vec_with_capacity;
use crate::simd::{Level, Work, prefetch, run};

/// The four index values of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Place {
    pub inst_start: u64,
    pub inst_len: u32,
    pub resp_start: u64,
    pub resp_len: u32,
}

/// Rows of a line whose lengths take two bytes each.
const SHORT: usize = 14;
/// Rows of a line whose lengths take four.
const LONG: usize = 7;
/// Rows of a line that have their distances too.
const NEAR: usize = 7;
/// Rows between the one that is fetched and the one that is used.
const AHEAD: usize = 24;

/// Rows that follow each other, response after instruction.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
struct Line<L, const N: usize> {
    base: u64,
    lengths: [[L; 2]; N],
}

/// Rows with gaps between them, response after instruction.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
struct NearLine {
    base: u64,
    rows: [(u32, [u16; 2]); NEAR],
}

#[derive(Debug)]
enum Lines {
    Short(Vec<Line<u16, SHORT>>),
    Long(Vec<Line<u32, LONG>>),
    Near(Vec<NearLine>),
    Apart(Vec<Place>),
}

/// The places of rows, or of some that follow each other in a plan.
#[derive(Debug)]
pub struct Table {
    lines: Lines,
    first: u32,
    rows: usize,
    total: u64,
}

impl Table {
    /// For so many rows from this one on, which follow each other after so many tokens, or lie anywhere (none).
    #[must_use]
    pub fn new(rows: usize, first: u32, tokens: Option<u64>) -> Self {
        let lines = match tokens {
            Some(_) => Lines::Short(vec_with_capacity(rows.div_ceil(SHORT))),
            None => Lines::Near(vec_with_capacity(rows.div_ceil(NEAR))),
        };
        Self { lines, first, rows: 0, total: tokens.unwrap_or_default() }
    }

    /// Rows.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Tokens of all rows up to the last one, if they follow each other.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// The numbers of its rows in the plan.
    #[must_use]
    pub const fn range(&self) -> Range<u32> {
        self.first..self.first + self.rows as u32
    }

    /// Whether each response follows its instruction.
    #[must_use]
    pub const fn follows(&self) -> bool {
        !matches!(self.lines, Lines::Apart(_))
    }

    /// Which of its rows has this number in the plan, if it has it.
    #[inline(always)]
    #[must_use]
    pub fn row(&self, number: u32) -> Option<u32> {
        number.checked_sub(self.first).filter(|&row| (row as usize) < self.rows)
    }

    /// Add the next row; its starts count only where rows lie apart.
    pub fn push(&mut self, place: Place) {
        let lengths = [place.inst_len, place.resp_len];
        let short = lengths.map(|length| length as u16);
        let is_short = short.map(u32::from) == lengths;
        match &self.lines {
            Lines::Short(lines) if !is_short => {
                let mut long = Vec::new();
                for row in 0..self.rows {
                    let Place { inst_start, inst_len, resp_len, .. } = (&lines[..]).find(row);
                    add(&mut long, row, inst_start, [inst_len, resp_len]);
                }
                self.lines = Lines::Long(long);
            }
            Lines::Near(lines) => {
                let base = if self.rows.is_multiple_of(NEAR) { None } else { lines.last() };
                let distance = place.inst_start.checked_sub(base.map_or(place.inst_start, |line| line.base));
                let follows = place.inst_start.checked_add(place.inst_len.into()) == Some(place.resp_start);
                if !is_short || !follows || distance.is_none_or(|distance| distance > u32::MAX.into()) {
                    self.lines = Lines::Apart((0..self.rows).map(|row| (&lines[..]).find(row)).collect());
                }
            }
            _ => {}
        }
        match &mut self.lines {
            Lines::Short(lines) => add(lines, self.rows, self.total, short),
            Lines::Long(lines) => add(lines, self.rows, self.total, lengths),
            Lines::Near(lines) => {
                if self.rows.is_multiple_of(NEAR) {
                    lines.push(NearLine { base: place.inst_start, rows: Default::default() });
                }
                if let Some(line) = lines.last_mut() {
                    line.rows[self.rows % NEAR] = ((place.inst_start - line.base) as u32, short);
                }
            }
            Lines::Apart(places) => places.push(place),
        }
        self.rows += 1;
        self.total += lengths.map(u64::from).iter().sum::<u64>();
    }

    /// Append the places of those of these rows of the plan that are in the table.
    pub fn find(&self, order: &[u32], places: &mut Vec<Place>) {
        match &self.lines {
            Lines::Short(lines) => run(Level::best(), Places { table: self, lines: &lines[..], order, places }),
            Lines::Long(lines) => run(Level::best(), Places { table: self, lines: &lines[..], order, places }),
            Lines::Near(lines) => run(Level::best(), Places { table: self, lines: &lines[..], order, places }),
            Lines::Apart(lines) => run(Level::best(), Places { table: self, lines: &lines[..], order, places }),
        }
    }

    /// Write the index arrays of these rows: starts of `S` bytes, lengths of `L`, the lowest first. Returns false, and
    /// leaves `out` as it was, if there is no such row or not as much room as all of them take.
    #[must_use]
    pub fn fill<const S: usize, const L: usize>(&self, order: &[u32], out: [&mut [u8]; 4]) -> bool {
        let room = [S, L, S, L].iter().zip(&out).all(|(width, out)| out.len() == width * order.len());
        if !room || order.iter().any(|&row| self.row(row).is_none()) {
            return false;
        }
        let first = self.first;
        match &self.lines {
            Lines::Short(lines) => run(Level::best(), Fill::<_, S, L> { lines: &lines[..], first, order, out }),
            Lines::Long(lines) => run(Level::best(), Fill::<_, S, L> { lines: &lines[..], first, order, out }),
            Lines::Near(lines) => run(Level::best(), Fill::<_, S, L> { lines: &lines[..], first, order, out }),
            Lines::Apart(places) => run(Level::best(), Fill::<_, S, L> { lines: &places[..], first, order, out }),
        }
        true
    }
}

fn add<L: Copy + Default, const N: usize>(lines: &mut Vec<Line<L, N>>, rows: usize, total: u64, lengths: [L; 2]) {
    if rows.is_multiple_of(N) {
        lines.push(Line { base: total, lengths: [[L::default(); 2]; N] });
    }
    if let Some(line) = lines.last_mut() {
        line.lengths[rows % N] = lengths;
    }
}

trait Find {
    fn fetch(&self, row: usize);
    fn find(&self, row: usize) -> Place;
}

/// A length of a line.
trait Length: Copy + Into<u32> + BitAnd<Output = Self> + 'static {
    /// What all lengths of a line together fit in.
    type Total: From<Self> + Into<u64> + Sum;
    /// For as many lengths as a line has all their bits, and then none.
    const MASKS: &'static [Self];
}

impl Length for u16 {
    type Total = u32;
    const MASKS: &'static [Self] = [[Self::MAX; 2 * SHORT], [0; 2 * SHORT]].as_flattened();
}

impl Length for u32 {
    type Total = u64;
    const MASKS: &'static [Self] = [[Self::MAX; 2 * SHORT], [0; 2 * SHORT]].as_flattened();
}

impl<L: Length, const N: usize> Find for &[Line<L, N>] {
    #[inline(always)]
    fn fetch(&self, row: usize) {
        prefetch(&self[row / N]);
    }

    #[inline(always)]
    fn find(&self, row: usize) -> Place {
        let (line, row) = (&self[row / N], row % N);
        // Without a branch, as which row of a line is asked for cannot be foretold; and without a comparison.
        let masks = L::MASKS[2 * (SHORT - row)..][..2 * N].iter();
        let before: L::Total =
            line.lengths.as_flattened().iter().zip(masks).map(|(&a, &mask)| L::Total::from(a & mask)).sum();
        let [inst_len, resp_len] = line.lengths[row].map(Into::into);
        let inst_start = line.base + before.into();
        Place { inst_start, inst_len, resp_start: inst_start + u64::from(inst_len), resp_len }
    }
}

impl Find for &[NearLine] {
    #[inline(always)]
    fn fetch(&self, row: usize) {
        prefetch(&self[row / NEAR]);
    }

    #[inline(always)]
    fn find(&self, row: usize) -> Place {
        let line = &self[row / NEAR];
        let (distance, lengths) = line.rows[row % NEAR];
        let ([inst_len, resp_len], inst_start) = (lengths.map(u32::from), line.base + u64::from(distance));
        Place { inst_start, inst_len, resp_start: inst_start + u64::from(inst_len), resp_len }
    }
}

impl Find for &[Place] {
    #[inline(always)]
    fn fetch(&self, row: usize) {
        prefetch(&self[row]);
    }

    #[inline(always)]
    fn find(&self, row: usize) -> Place {
        self[row]
    }
}

struct Places<'a, F> {
    table: &'a Table,
    lines: F,
    order: &'a [u32],
    places: &'a mut Vec<Place>,
}

impl<F: Find> Work for Places<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { table, lines, order, places } = self;
        // Few of them may be here: what is ahead is looked for among these alone.
        let here: Vec<u32> = order.iter().filter_map(|&row| table.row(row)).collect();
        for (number, &row) in here.iter().enumerate() {
            if let Some(&row) = here.get(number + AHEAD) {
                lines.fetch(row as usize);
            }
            places.push(lines.find(row as usize));
        }
    }
}

struct Fill<'a, F, const S: usize, const L: usize> {
    lines: F,
    first: u32,
    order: &'a [u32],
    out: [&'a mut [u8]; 4],
}

impl<F: Find, const S: usize, const L: usize> Work for Fill<'_, F, S, L> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { lines, first, order, out: [a, b, c, d] } = self;
        for &row in order.iter().take(AHEAD) {
            lines.fetch((row - first) as usize);
        }
        let starts = a.as_chunks_mut::<S>().0.iter_mut().zip(c.as_chunks_mut::<S>().0);
        let lengths = b.as_chunks_mut::<L>().0.iter_mut().zip(d.as_chunks_mut::<L>().0);
        for (number, ((inst, resp), (inst_len, resp_len))) in starts.zip(lengths).enumerate() {
            if let Some(&row) = order.get(number + AHEAD) {
                lines.fetch((row - first) as usize);
            }
            let place = lines.find((order[number] - first) as usize);
            inst.copy_from_slice(&place.inst_start.to_le_bytes()[..S]);
            resp.copy_from_slice(&place.resp_start.to_le_bytes()[..S]);
            inst_len.copy_from_slice(&u64::from(place.inst_len).to_le_bytes()[..L]);
            resp_len.copy_from_slice(&u64::from(place.resp_len).to_le_bytes()[..L]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled<const S: usize, const L: usize>(table: &Table, order: &[u32]) -> Vec<[u64; 4]> {
        let mut out = [S, L, S, L].map(|width| vec![0; width * order.len()]);
        let [a, b, c, d] = &mut out;
        assert!(table.fill::<S, L>(order, [a, b, c, d]));
        let number = |column: usize, row: usize, width: usize| {
            out[column][row * width..][..width].iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
        };
        (0..order.len()).map(|row| [0, 1, 2, 3].map(|column| number(column, row, [S, L, S, L][column]))).collect()
    }

    #[test]
    fn rows_are_where_they_were_put() {
        // What is far apart, long, or not after its instruction comes at this row.
        for (far, apart, first) in [
            (None, false, 0),
            (Some(100), false, 7),
            (Some(0), false, 0),
            (None, true, 9),
            (Some(0), true, 0),
            (Some(5), true, 3),
        ] {
            for odd in 0..if apart { 3 } else { 1 } {
                let mut table = Table::new(0, first, (!apart).then_some(1000));
                let (mut expected, mut total) = (Vec::new(), 1000_u64);
                for row in 0_u32..200 {
                    let here = Some(row) == far;
                    let inst_len = if here && odd == 0 { 70_000 } else { row * 7919 % 65_536 };
                    let resp_len = row * 104_729 % 65_536;
                    let gap =
                        if apart { u64::from(row) * 1_000_003 + if here && odd == 1 { 1 << 33 } else { 0 } } else { 0 };
                    let inst_start = total + gap;
                    let resp_start = inst_start + u64::from(inst_len) + u64::from(here && odd == 2);
                    let place = Place { inst_start, inst_len, resp_start, resp_len };
                    table.push(place);
                    expected.push([inst_start, inst_len.into(), resp_start, resp_len.into()]);
                    total += u64::from(inst_len) + u64::from(resp_len);
                }
                assert_eq!((table.rows(), table.total()), (200, if apart { total - 1000 } else { total }));
                let order: Vec<u32> = (0..500).map(|number| number * 37 % 200 + first).collect();
                let wanted: Vec<_> = order.iter().map(|&row| expected[(row - first) as usize]).collect();
                assert_eq!(filled::<8, 8>(&table, &order), wanted);
                assert_eq!(filled::<8, 4>(&table, &order), wanted);
                if !apart {
                    assert_eq!(filled::<4, 4>(&table, &order), wanted);
                }
                assert!(filled::<4, 4>(&table, &[]).is_empty());
                let mut places = vec![Place::default()];
                table.find(&[first + 3, first + 200, first.wrapping_sub(1), first + 199], &mut places);
                let numbers =
                    |place: &Place| [place.inst_start, place.inst_len.into(), place.resp_start, place.resp_len.into()];
                assert_eq!(places[1..].iter().map(numbers).collect::<Vec<_>>(), [expected[3], expected[199]]);
                let mut room = [4, 4, 4, 4].map(|width| vec![0; width]);
                let [a, b, c, d] = &mut room;
                assert!(!table.fill::<4, 4>(&[first + 200], [a, b, c, d]));
                assert!(!table.fill::<4, 8>(&[first], [a, b, c, d]));
            }
        }
    }
}
