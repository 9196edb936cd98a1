//! Where planned rows are in the sampled tokens, by their number: an epoch's order becomes its arrays through this.
//!
//! An epoch asks for rows at random, and each costs a cache line that is not there; so a row's places take few bytes,
//! and one line has them all. Where rows follow each other, a line has the place of its first and the lengths of all.

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
/// Rows between the one that is fetched and the one that is used.
const AHEAD: usize = 24;

/// Rows that follow each other, response after instruction.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
struct Line<L, const N: usize> {
    base: u64,
    lengths: [[L; 2]; N],
}

#[derive(Debug)]
enum Lines {
    Short(Vec<Line<u16, SHORT>>),
    Long(Vec<Line<u32, LONG>>),
    Apart(Vec<Place>),
}

/// The places of rows.
#[derive(Debug)]
pub struct Table {
    lines: Lines,
    rows: usize,
    total: u64,
    longest: u32,
}

impl Table {
    /// For so many rows, which follow each other (`apart` = false) or lie anywhere.
    #[must_use]
    pub fn new(rows: usize, apart: bool) -> Self {
        let lines = if apart {
            Lines::Apart(vec_with_capacity(rows))
        } else {
            Lines::Short(vec_with_capacity(rows.div_ceil(SHORT)))
        };
        Self { lines, rows: 0, total: 0, longest: 0 }
    }

    /// Rows.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Tokens of all rows.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// Tokens of the longest instruction or response.
    #[must_use]
    pub const fn longest(&self) -> u32 {
        self.longest
    }

    /// Add the next row; its starts count only where rows lie apart.
    pub fn push(&mut self, place: Place) {
        let lengths = [place.inst_len, place.resp_len];
        if let (Lines::Short(lines), true) = (&self.lines, lengths.iter().any(|&length| length > u16::MAX.into())) {
            let mut long = Vec::new();
            let rows = lines.iter().flat_map(|line| line.lengths.map(|row| row.map(u32::from)));
            let (mut total, mut count) = (0, 0);
            for lengths in rows.take(self.rows) {
                add(&mut long, count, total, lengths);
                total += lengths.map(u64::from).iter().sum::<u64>();
                count += 1;
            }
            self.lines = Lines::Long(long);
        }
        match &mut self.lines {
            Lines::Short(lines) => add(lines, self.rows, self.total, lengths.map(|length| length as u16)),
            Lines::Long(lines) => add(lines, self.rows, self.total, lengths),
            Lines::Apart(places) => places.push(place),
        }
        self.rows += 1;
        self.total += lengths.map(u64::from).iter().sum::<u64>();
        self.longest = lengths.into_iter().fold(self.longest, u32::max);
    }

    /// Write the index arrays of these rows: starts of `S` bytes, lengths of `L`, the lowest first. Returns false, and
    /// leaves `out` as it was, if there is no such row or not as much room as all of them take.
    #[must_use]
    pub fn fill<const S: usize, const L: usize>(&self, order: &[u32], out: [&mut [u8]; 4]) -> bool {
        let room = [S, L, S, L].iter().zip(&out).all(|(width, out)| out.len() == width * order.len());
        if !room || order.iter().any(|&row| row as usize >= self.rows) {
            return false;
        }
        match &self.lines {
            Lines::Short(lines) => run(Level::best(), Fill::<_, S, L> { lines: &lines[..], order, out }),
            Lines::Long(lines) => run(Level::best(), Fill::<_, S, L> { lines: &lines[..], order, out }),
            Lines::Apart(places) => run(Level::best(), Fill::<_, S, L> { lines: &places[..], order, out }),
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

impl<L: Copy + Into<u32>, const N: usize> Find for &[Line<L, N>] {
    #[inline(always)]
    fn fetch(&self, row: usize) {
        prefetch(&self[row / N]);
    }

    #[inline(always)]
    fn find(&self, row: usize) -> Place {
        let (line, row) = (&self[row / N], row % N);
        let mut before = 0_u64;
        for (number, &[inst, resp]) in line.lengths.iter().enumerate() {
            // Without a branch: which row of a line is asked for cannot be foretold.
            let mask = u64::from(number < row).wrapping_neg();
            before += (u64::from(inst.into()) + u64::from(resp.into())) & mask;
        }
        let [inst_len, resp_len] = line.lengths[row].map(Into::into);
        let inst_start = line.base + before;
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

struct Fill<'a, F, const S: usize, const L: usize> {
    lines: F,
    order: &'a [u32],
    out: [&'a mut [u8]; 4],
}

impl<F: Find, const S: usize, const L: usize> Work for Fill<'_, F, S, L> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { lines, order, out: [a, b, c, d] } = self;
        for &row in order.iter().take(AHEAD) {
            lines.fetch(row as usize);
        }
        let starts = a.as_chunks_mut::<S>().0.iter_mut().zip(c.as_chunks_mut::<S>().0);
        let lengths = b.as_chunks_mut::<L>().0.iter_mut().zip(d.as_chunks_mut::<L>().0);
        for (number, ((inst, resp), (inst_len, resp_len))) in starts.zip(lengths).enumerate() {
            if let Some(&row) = order.get(number + AHEAD) {
                lines.fetch(row as usize);
            }
            let place = lines.find(order[number] as usize);
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
        for (long, apart) in [(None, false), (Some(100), false), (Some(0), false), (Some(5), true)] {
            let mut table = Table::new(0, apart);
            let (mut expected, mut total) = (Vec::new(), 0_u64);
            for row in 0_u32..200 {
                let inst_len = if Some(row) == long { 70_000 } else { row * 7919 % 65_536 };
                let resp_len = row * 104_729 % 65_536;
                let inst_start = if apart { u64::from(row) << 33 } else { total };
                let resp_start = if apart { 7 } else { total + u64::from(inst_len) };
                let place = Place { inst_start, inst_len, resp_start, resp_len };
                table.push(place);
                expected.push([inst_start, inst_len.into(), resp_start, resp_len.into()]);
                total += u64::from(inst_len) + u64::from(resp_len);
            }
            assert_eq!((table.rows(), table.total()), (200, total));
            let longest = expected.iter().map(|row| row[1].max(row[3])).max();
            assert_eq!(Some(u64::from(table.longest())), longest);
            let order: Vec<u32> = (0..500).map(|number| number * 37 % 200).collect();
            let wanted: Vec<_> = order.iter().map(|&row| expected[row as usize]).collect();
            assert_eq!(filled::<8, 8>(&table, &order), wanted);
            assert_eq!(filled::<8, 4>(&table, &order), wanted);
            if !apart {
                assert_eq!(filled::<4, 4>(&table, &order), wanted);
            }
            assert!(filled::<4, 4>(&table, &[]).is_empty());
            let mut room = [4, 4, 4, 4].map(|width| vec![0; width]);
            let [a, b, c, d] = &mut room;
            assert!(!table.fill::<4, 4>(&[200], [a, b, c, d]));
            assert!(!table.fill::<4, 8>(&[0], [a, b, c, d]));
        }
    }
}
