//! Where the batches of an epoch begin, found in one pass over the lengths of its rows, of which no array is mapped.

use crate::loader::pack::{Balance, Passed, Row, Slots, count};
use crate::pages::vec_with_capacity;

/// A length that is not its own code. Others have 12 bits: nearly all rows of a context of 4,096 are their own.
const LONG: u16 = 0xfff;

/// Rows before which the long ones are counted together.
const BLOCK: usize = 64;

/// Rows that are looked up at once.
const STRIDE: usize = 4096;

/// Inputs of rows, most of them a byte and a half each.
#[derive(Clone, Debug, Default)]
pub struct Lengths {
    rows: usize,
    /// Of two rows three bytes, the first row's bits before the second's.
    codes: Vec<u8>,
    /// Long rows before each block.
    before: Vec<u32>,
    /// Of each row whose code is [`LONG`]: twice its inputs, and one more if its response is one token.
    long: Vec<u32>,
    most: i64,
}

impl Lengths {
    /// With room for this many rows.
    #[must_use]
    pub fn with_capacity(rows: usize) -> Self {
        Self {
            rows: 0,
            codes: vec_with_capacity(rows + rows / 2 + 2),
            before: Vec::with_capacity(rows / BLOCK + 1),
            long: Vec::new(),
            most: 0,
        }
    }

    /// Add a row, if it has texts, and inputs that a table of this kind can hold.
    #[must_use]
    pub fn push(&mut self, inst_len: i64, resp_len: i64) -> bool {
        let inputs = inst_len.saturating_add(resp_len).saturating_sub(1);
        let (Ok(inputs), true) = (u32::try_from(inputs), inst_len > 0 && resp_len > 0 && inputs < 1 << 31) else {
            return false;
        };
        let row = Row { number: 0, inst_start: 0, inst_len, resp_start: 0, resp_len };
        self.most = self.most.max(row.needed());
        if self.rows.is_multiple_of(BLOCK) {
            self.before.push(self.long.len() as u32);
        }
        let code = match u16::try_from(inputs) {
            Ok(code) if code < LONG && resp_len > 1 => code,
            _ => {
                self.long.push(2 * inputs + u32::from(resp_len == 1));
                LONG
            }
        };
        match self.codes.last_mut() {
            Some(last) if !self.rows.is_multiple_of(2) => {
                *last |= (code << 4) as u8;
                self.codes.push((code >> 4) as u8);
            }
            _ => self.codes.extend(code.to_le_bytes()),
        }
        self.rows += 1;
        true
    }

    /// Rows.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.rows
    }

    /// Slots that a rank needs for the row that needs the most.
    #[must_use]
    pub const fn most(&self) -> i64 {
        self.most
    }

    /// Whether it has none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The code of a row.
    fn code(&self, row: usize) -> Option<u16> {
        let first = row + row / 2;
        let &[low, high] = self.codes.get(first..first + 2)? else { return None };
        Some((u16::from_le_bytes([low, high]) >> (row % 2 * 4)) & LONG)
    }

    /// Twice the inputs of a row whose code is [`LONG`], and one more if its response is one token.
    fn long(&self, row: usize) -> u32 {
        let first = row / BLOCK * BLOCK;
        let before = (first..row).filter(|&row| self.code(row) == Some(LONG)).count();
        self.long[self.before[row / BLOCK] as usize + before]
    }
}

/// A batch that is whole: rows, inputs, and the row after it.
pub type End = [i64; 3];

/// A pass over rows in the order of an epoch, which says where batches end as far as the epoch's end does not matter.
#[derive(Clone, Debug)]
pub struct Walk {
    slots: Slots,
    balance: Balance,
    passed: Passed,
    /// Number of the next row.
    next: i64,
    /// Rows that no batch has yet.
    rows: Vec<Row>,
    inputs: i64,
    /// For one rank, which needs no rows: how many there are, and whether one has a causal query.
    sole: (i64, bool),
    ended: i64,
    stopped: bool,
    ends: Vec<End>,
}

impl Walk {
    /// From the row of this number on, with which a batch begins.
    #[must_use]
    pub const fn new(start: i64, slots: Slots, balance: Balance, passed: Passed) -> Self {
        Self {
            slots,
            balance,
            passed,
            next: start,
            rows: Vec::new(),
            inputs: 0,
            sole: (0, false),
            ended: start,
            stopped: false,
            ends: Vec::new(),
        }
    }

    /// Go on with rows of a table, until `most` batches have ended. False if a batch is for the caller to decide: ranks
    /// cannot each have the rows that they need, or its balance needs more than lengths. None if the table lacks a row.
    pub fn follow(&mut self, lengths: &Lengths, places: &[u32], most: usize) -> Option<bool> {
        let mut codes = [0; STRIDE];
        for places in places.chunks(STRIDE) {
            if self.stopped || self.ends.len() >= most {
                break;
            }
            for (code, &place) in codes.iter_mut().zip(places) {
                *code = lengths.code(place as usize)?;
            }
            for (&code, &place) in codes.iter().zip(places) {
                let (inputs, one_token) = if code == LONG {
                    let long = lengths.long(place as usize);
                    (i64::from(long / 2), long % 2 == 1)
                } else {
                    (i64::from(code), false)
                };
                self.add(inputs, one_token);
                if self.stopped {
                    break;
                }
            }
        }
        Some(!self.stopped)
    }

    /// What has ended since this was last called.
    pub fn take(&mut self) -> Vec<End> {
        std::mem::take(&mut self.ends)
    }

    fn add(&mut self, inputs: i64, one_token: bool) {
        let number = self.next;
        self.next += 1;
        let resp_len = if one_token { 1 } else { 2 };
        let row = Row { number, inst_start: 0, inst_len: inputs + 1 - resp_len, resp_start: 0, resp_len };
        if self.passed.has(&row) {
            return;
        }
        if self.slots.ranks == 1 {
            self.add_to_the_only_rank(&row);
            return;
        }
        self.rows.push(row);
        self.inputs += inputs;
        let room = self.slots.tokens.saturating_mul(self.slots.ranks as i64);
        // A row after the window says that the epoch does not end with it.
        while !self.stopped && self.rows.last().is_some_and(|last| self.inputs - last.length() >= room) {
            self.end(room);
        }
    }

    /// The longest run of rows that has room; one row is not tested.
    fn add_to_the_only_rank(&mut self, row: &Row) {
        let (rows, causal) = self.sole;
        if rows > 0 && self.inputs + row.length() > self.slots.tokens {
            if self.slots.causal && !causal {
                self.stopped = true;
                return;
            }
            self.ends.push([rows, self.inputs, self.ended]);
            (self.sole, self.inputs) = ((0, false), 0);
        }
        self.sole = (self.sole.0 + 1, self.sole.1 || row.resp_len > 1);
        self.inputs += row.length();
        self.ended = row.number + 1;
    }

    fn end(&mut self, room: i64) {
        let mut sum = 0;
        let whole = self.rows.iter().position(|row| {
            sum += row.length();
            sum >= room
        });
        let window = &self.rows[..whole.map_or(self.rows.len(), |last| last + 1)];
        // Which rows ranks exchange follows from more than lengths.
        let exact = self.balance != Balance::QuadraticWork || window.iter().all(|row| row.resp_len > 1);
        let rows = if exact { count(window, self.slots, self.balance).unwrap_or_default() } else { 0 };
        if rows < self.slots.ranks {
            self.stopped = true;
            return;
        }
        let inputs = window[..rows].iter().map(Row::length).sum();
        let next = window[rows - 1].number + 1;
        self.ends.push([rows as i64, inputs, next]);
        self.rows.drain(..rows);
        self.inputs -= inputs;
    }
}

/// Places in `values` that hold one of `wanted`, which ascend; and which of them, each time it comes.
#[must_use]
pub fn find(values: &[u32], wanted: &[u32]) -> Vec<(usize, usize)> {
    const BITS: usize = 1 << 20;
    let mut filter = vec![0_u64; BITS / 64];
    for &value in wanted {
        let bit = value as usize % BITS;
        filter[bit / 64] |= 1 << (bit % 64);
    }
    let maybe = |value: u32| filter[value as usize % BITS / 64] >> (value as usize % 64) & 1 == 1;
    let candidates = values.iter().enumerate().filter(|&(_, &value)| maybe(value));
    candidates.filter_map(|(place, value)| Some((place, wanted.binary_search(value).ok()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loader::numbers::{Kind, Numbers};
    use crate::loader::pack::Index;
    use crate::loader::plain::plain;

    const PASSED: Passed = Passed { longer_than: 900, long: true, one_token: false };

    /// Lengths that are long, short and of one token, by a small generator.
    fn lengths(rows: usize, one_token: u32) -> Vec<(i64, i64)> {
        let mut state = 7_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 8
        };
        (0..rows)
            .map(|_| {
                let long = if next() % 10 == 0 { 400 } else { 1 };
                let resp_len = if one_token > 0 && next() % one_token == 0 { 1 } else { 2 + next() % 60 };
                (i64::from(1 + next() % 90 + long), i64::from(resp_len))
            })
            .collect()
    }

    fn bytes(values: impl Iterator<Item = i64>) -> Vec<u8> {
        values.flat_map(i64::to_le_bytes).collect()
    }

    #[test]
    fn batches_end_where_the_planner_ends_them() {
        for (one_token, ranks, balance) in [
            (0, 1, Balance::Lpt),
            // Rare enough that no batch has rows of one token alone.
            (40, 1, Balance::Lpt),
            (0, 3, Balance::Lpt),
            (4, 3, Balance::Lpt),
            (4, 3, Balance::Quadratic),
            (0, 4, Balance::QuadraticWork),
        ] {
            let rows = lengths(4000, one_token);
            let inst = bytes(rows.iter().map(|row| row.0));
            let resp = bytes(rows.iter().map(|row| row.1));
            let zeros = bytes(rows.iter().map(|_| 0));
            let numbers = |bytes| Numbers::new(bytes, Kind::I8);
            let index = Index {
                inst_start: numbers(&zeros),
                inst_len: numbers(&inst),
                resp_start: numbers(&zeros),
                resp_len: numbers(&resp),
            };
            let slots = Slots { ranks, tokens: 901, causal: true };
            let mut table = Lengths::with_capacity(rows.len());
            assert!(rows.iter().all(|&(inst_len, resp_len)| table.push(inst_len, resp_len)));
            let places: Vec<u32> = (0..rows.len() as u32).collect();
            let mut walk = Walk::new(0, slots, balance, PASSED);
            assert_eq!(walk.follow(&table, &places, usize::MAX), Some(true));
            let ends = walk.take();
            assert!(ends.len() > 50);
            let mut start = 0;
            for end in ends {
                // A batch of a whole window is for the caller, as no row may come after it.
                if let Some(batch) = plain(&index, start, PASSED, slots, balance, 0) {
                    assert_eq!(end, [batch.rows as i64, batch.tokens, batch.next]);
                }
                start = end[2] as usize;
            }
        }
    }

    #[test]
    fn a_batch_that_needs_more_than_lengths_is_left_to_the_caller() {
        let mut table = Lengths::default();
        assert!((0..90).all(|_| table.push(9, 1)));
        assert!(!table.push(0, 1) && !table.push(1 << 40, 1));
        let slots = Slots { ranks: 2, tokens: 40, causal: true };
        let places: Vec<u32> = (0..90).collect();
        for (ranks, balance) in [(1, Balance::Lpt), (2, Balance::Lpt), (2, Balance::QuadraticWork)] {
            let mut walk = Walk::new(0, Slots { ranks, ..slots }, balance, PASSED);
            assert_eq!((walk.follow(&table, &places, 9), walk.take()), (Some(false), vec![]));
        }
        assert_eq!(Walk::new(0, slots, Balance::Lpt, PASSED).follow(&table, &[90], 9), None);
    }

    #[test]
    fn values_are_found_each_time_they_come() {
        let wanted = [3, 1 << 20, (1 << 20) + 4];
        assert_eq!(find(&[4, 3, 1 << 20, 0, 3], &wanted), [(1, 0), (2, 1), (4, 0)]);
    }
}
