//! Which rows make a global batch, and which of them each rank gets.
//!
//! The method is the "multipack" sampler of HRM-Text (and of OpenChat before it): the largest number of consecutive rows
//! that longest-processing-time-first (Graham, "Bounds on multiprocessing timing anomalies", 1969) puts into equal slots
//! of tokens, found by bisection. Which rank gets which row depends on how ties are broken in its heap, so the heap is
//! the reference's, position by position.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::loader::numbers::Numbers;

/// A row of a window: its number, and where its two texts lie in the tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its number in its epoch.
    pub number: i64,
    /// First token of the instruction.
    pub inst_start: i64,
    /// Tokens of the instruction.
    pub inst_len: i64,
    /// First token of the response.
    pub resp_start: i64,
    /// Tokens of the response.
    pub resp_len: i64,
}

impl Row {
    /// Inputs: all tokens but the last one of the response.
    #[inline]
    #[must_use]
    pub const fn length(&self) -> i64 {
        self.inst_len.wrapping_add(self.resp_len).wrapping_sub(1)
    }

    /// Slots of a rank that has it: with a response of one token it needs another row beside it, of two inputs or more.
    pub(crate) const fn needed(&self) -> i64 {
        self.length().saturating_add(if self.resp_len == 1 { 2 } else { 0 })
    }

    /// Twice what attention costs: |I|² + |I|·q + q²/2 with the q = |O| − 1 queries of the response.
    const fn work(&self) -> u64 {
        let (prefix, queries) = (self.inst_len as u64, (self.resp_len - 1) as u64);
        2 * prefix * prefix + 2 * prefix * queries + queries * queries
    }
}

/// Rows whose numbers are read at once.
const BLOCK: usize = 256;

/// The four index arrays of an epoch.
#[derive(Clone, Copy, Debug)]
pub struct Index<'a> {
    /// First tokens of the instructions.
    pub inst_start: Numbers<'a>,
    /// Their tokens.
    pub inst_len: Numbers<'a>,
    /// First tokens of the responses.
    pub resp_start: Numbers<'a>,
    /// Their tokens.
    pub resp_len: Numbers<'a>,
}

impl Index<'_> {
    const fn columns(&self) -> [&Numbers<'_>; 4] {
        [&self.inst_start, &self.inst_len, &self.resp_start, &self.resp_len]
    }

    /// Rows that all four arrays have.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.columns().map(Numbers::len).into_iter().min().unwrap_or_default()
    }

    fn row(&self, number: usize) -> Row {
        Row {
            number: number as i64,
            inst_start: self.inst_start.get(number),
            inst_len: self.inst_len.get(number),
            resp_start: self.resp_start.get(number),
            resp_len: self.resp_len.get(number),
        }
    }

    /// Rows from `start` on, until their lengths add up to `tokens` or the rows end, without those that `passed` leaves
    /// out.
    #[must_use]
    pub fn window(&self, start: usize, tokens: i64, passed: Passed) -> Vec<Row> {
        let mut rows = Vec::with_capacity(BLOCK);
        let (mut sum, end) = (0_i64, self.rows());
        let mut columns = [[0; BLOCK]; 4];
        for first in (start..end).step_by(BLOCK) {
            let count = BLOCK.min(end - first);
            for (column, numbers) in columns.iter_mut().zip(self.columns()) {
                numbers.read(first, &mut column[..count]);
            }
            for place in 0..count {
                if sum >= tokens {
                    return rows;
                }
                let [inst_start, inst_len, resp_start, resp_len] = columns.each_ref().map(|column| column[place]);
                let row = Row { number: (first + place) as i64, inst_start, inst_len, resp_start, resp_len };
                if !passed.has(&row) {
                    sum = sum.saturating_add(row.length());
                    rows.push(row);
                }
            }
        }
        rows
    }

    /// Look at every row of the epoch.
    #[must_use]
    pub fn survey(&self, tokens: u64, passed: Passed) -> Survey {
        let mut found = Survey::default();
        for number in 0..self.rows() {
            let row = self.row(number);
            let outside = |start: i64, len: i64| start < 0 || start.saturating_add(len) as u64 > tokens;
            if row.inst_len < 1 || row.resp_len < 1 {
                found.empty.see(number);
            } else if outside(row.inst_start, row.inst_len) || outside(row.resp_start, row.resp_len) {
                found.outside.see(number);
            } else {
                let elsewhere = passed.one_token && row.resp_len == 1;
                found.long.see_if(passed.is_long(&row) && !elsewhere, number);
                found.one_token.see_if(row.resp_len == 1, number);
                found.passed += u64::from(passed.has(&row));
                found.length += row.length() as u64;
                found.targets += row.resp_len as u64;
                if row.length() > found.longest {
                    (found.longest, found.longest_row) = (row.length(), number as u64);
                }
            }
        }
        found
    }
}

/// Rows that are left out.
#[derive(Clone, Copy, Debug)]
pub struct Passed {
    /// Those that need more slots than this are long.
    pub longer_than: i64,
    /// Whether long rows are left out.
    pub long: bool,
    /// Whether rows with a response of one token are.
    pub one_token: bool,
}

impl Passed {
    pub(crate) const fn has(self, row: &Row) -> bool {
        (self.long && self.is_long(row)) || (self.one_token && row.resp_len == 1)
    }

    const fn is_long(self, row: &Row) -> bool {
        row.needed() > self.longer_than
    }
}

/// How many such rows there are, and which is the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sight {
    /// How many.
    pub count: u64,
    /// The first, if there is one.
    pub first: u64,
}

impl Sight {
    const fn see(&mut self, number: usize) {
        if self.count == 0 {
            self.first = number as u64;
        }
        self.count += 1;
    }

    const fn see_if(&mut self, is_so: bool, number: usize) {
        if is_so {
            self.see(number);
        }
    }
}

/// An epoch in figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Rows with an empty instruction or response.
    pub empty: Sight,
    /// Rows that do not lie in the tokens.
    pub outside: Sight,
    /// Rows that are longer than asked for.
    pub long: Sight,
    /// Rows whose response is one token.
    pub one_token: Sight,
    /// Rows that are left out.
    pub passed: u64,
    /// Inputs of all rows.
    pub length: u64,
    /// Supervised tokens of all rows: those of the responses.
    pub targets: u64,
    /// Inputs of the longest row.
    pub longest: i64,
    /// That row, the first of them.
    pub longest_row: u64,
}

/// By what rows are dealt to ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balance {
    /// Longest first to the rank with the fewest tokens.
    Lpt,
    /// Longest first to the rank with the least Σ length², as long as its tokens have room.
    Quadratic,
    /// The same by the work of attention with bidirectional prefixes.
    QuadraticWork,
}

/// What a global batch may hold.
#[derive(Clone, Copy, Debug)]
pub struct Slots {
    /// Ranks.
    pub ranks: usize,
    /// Tokens of a rank.
    pub tokens: i64,
    /// Whether each rank must get a row whose response has two tokens or more. It then also has fewer rows than slots.
    pub causal: bool,
}

/// A global batch: rows of the window by rank, in the order of assignment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// How many rows from the window's beginning it has.
    pub rows: usize,
    /// Places in the window, the first rank's first.
    pub places: Vec<u32>,
    /// Where each rank's places begin, and the end.
    pub ends: Vec<u32>,
}

/// Not every rank can have a row whose response has two tokens or more.
#[derive(Debug, PartialEq, Eq)]
pub struct NoCausal {
    /// The rows that have.
    pub multi: usize,
    /// All rows.
    pub rows: usize,
}

/// Ranks by their load: a binary heap in positions 1 to n, as the reference sifts it.
struct Loads {
    heap: Vec<(i64, u32)>,
}

impl Loads {
    fn new(ranks: usize) -> Self {
        Self { heap: vec![(0, 0); ranks + 1] }
    }

    fn reset(&mut self) {
        for (position, slot) in self.heap.iter_mut().enumerate() {
            *slot = (0, (position as u32).wrapping_sub(1));
        }
    }

    /// Add a row to the least load; whose that is, and what it comes to.
    ///
    /// The reference goes down along the lesser children until none is less than the new load. As a rule that is the
    /// bottom, so this goes there without looking, which no processor can foresee, and back up: the same place, as loads
    /// do not fall along the way.
    #[inline]
    fn add(&mut self, length: i64) -> (u32, i64) {
        let ranks = self.heap.len() - 1;
        let (load, rank) = self.heap[1];
        let mine = (load.wrapping_add(length), rank);
        let mut place = 1;
        while 2 * place < ranks {
            let left = 2 * place;
            let child = left + usize::from(self.heap[left + 1].0 < self.heap[left].0);
            self.heap[place] = self.heap[child];
            place = child;
        }
        if 2 * place == ranks {
            self.heap[place] = self.heap[ranks];
            place = ranks;
        }
        while place > 1 && mine.0 <= self.heap[place / 2].0 {
            self.heap[place] = self.heap[place / 2];
            place /= 2;
        }
        self.heap[place] = mine;
        (rank, mine.0)
    }
}

/// A window's rows, longest first.
struct Sorted {
    /// Length and place; of equal lengths the later place first.
    rows: Vec<(i64, u32)>,
    /// Lengths up to each place.
    sums: Vec<i64>,
}

/// Rows up to this length are sorted by counting.
const COUNTED: usize = 1 << 16;

impl Sorted {
    fn new(window: &[Row]) -> Self {
        let lengths = || window.iter().map(Row::length);
        let longest = lengths().max().and_then(|longest| usize::try_from(longest).ok());
        let rows = match longest {
            Some(longest) if longest < COUNTED && lengths().all(|length| length >= 0) => by_counting(window, longest),
            _ => {
                let mut rows: Vec<_> = lengths().zip(0_u32..).collect();
                rows.sort_unstable_by_key(|&row| Reverse(row));
                rows
            }
        };
        let mut sum = 0_i64;
        let sums = lengths().map(|length| {
            sum = sum.saturating_add(length);
            sum
        });
        Self { sums: sums.collect(), rows }
    }

    /// The first `count` rows of the window, longest first.
    fn first(&self, count: usize) -> impl Iterator<Item = (i64, u32)> + '_ {
        self.rows.iter().copied().filter(move |&(_, place)| (place as usize) < count)
    }

    /// Whether the first `count` rows, whose lengths are not negative, fit however they are dealt. If so, fewer do too.
    fn surely_fit(&self, count: usize, slots: Slots) -> bool {
        let ranks = slots.ranks as i64;
        // The least load is never above the mean: where a row has room on top of that, it has room. Where the longest has
        // room on top of all, all have. Which rows are meant no processor can foresee, so all are looked at and the others
        // count as nothing.
        let most = |(before, most): (i64, i64), &(length, place): &(i64, u32)| {
            let length = if (place as usize) < count { length } else { 0 };
            (before + length, most.max(length.saturating_mul(ranks).saturating_add(before)))
        };
        self.sums[count - 1] <= slots.tokens.saturating_sub(self.rows[0].0).saturating_mul(ranks)
            || self.rows.iter().fold((0, 0), most).1 <= slots.tokens.saturating_mul(ranks)
    }

    /// Whether the first `count` rows fit into the slots; which rank got which, in `dealt`, where they had to be dealt.
    fn fit(&self, count: usize, slots: Slots, loads: &mut Loads, dealt: &mut Vec<u32>) -> bool {
        dealt.clear();
        let (sum, ranks) = (self.sums[count - 1], slots.ranks as i64);
        if sum > slots.tokens.saturating_mul(ranks) {
            return false;
        }
        if self.rows[self.rows.len() - 1].0 >= 0 && self.surely_fit(count, slots) {
            return true;
        }
        loads.reset();
        self.first(count).all(|(length, _)| {
            let (rank, load) = loads.add(length);
            dealt.push(rank);
            load <= slots.tokens
        })
    }

    /// The largest number of rows that fit, as the reference bisects for it; one row is not tested. Which rank gets which,
    /// longest first, if that is known by then.
    fn largest(&self, slots: Slots, loads: &mut Loads) -> (usize, Vec<u32>) {
        // With more rows all ranks together have no room. Where these have room without a look at the heap, fewer have too.
        if self.rows[self.rows.len() - 1].0 >= 0 {
            let room = slots.tokens.saturating_mul(slots.ranks as i64);
            let most = self.sums.partition_point(|&sum| sum <= room).max(1);
            if most == 1 || self.surely_fit(most, slots) {
                return (most, Vec::new());
            }
        }
        let (mut low, mut high) = (1, self.rows.len() + 1);
        let (mut dealt, mut tried) = (Vec::with_capacity(self.rows.len()), Vec::with_capacity(self.rows.len()));
        while high - low > 1 {
            let middle = usize::midpoint(low, high);
            if self.fit(middle, slots, loads, &mut tried) {
                low = middle;
                std::mem::swap(&mut dealt, &mut tried);
            } else {
                high = middle;
            }
        }
        (low, dealt)
    }

    /// The rank of each of the first `count` rows, longest first, by tokens alone.
    fn by_tokens(&self, count: usize, loads: &mut Loads) -> Vec<u32> {
        loads.reset();
        self.first(count).map(|(length, _)| loads.add(length).0).collect()
    }

    /// The same by what rows cost; `None` if a row finds no room.
    fn by_cost(&self, count: usize, slots: Slots, cost: impl Fn(u32) -> u64) -> Option<Vec<u32>> {
        let mut ranks: BinaryHeap<_> = (0..slots.ranks as u32).map(|rank| Reverse((0_u64, 0_i64, rank))).collect();
        let mut full = Vec::new();
        let mut dealt = Vec::with_capacity(count);
        let shortest = self.first(count).last()?.0;
        for (length, place) in self.first(count) {
            let (spent, load, rank) = loop {
                let Reverse(least) = ranks.pop()?;
                if least.1 + length <= slots.tokens {
                    break least;
                }
                // A rank without room for the shortest row would be looked at for each of the rows to come.
                if least.1 + shortest <= slots.tokens {
                    full.push(Reverse(least));
                }
            };
            ranks.push(Reverse((spent.saturating_add(cost(place)), load + length, rank)));
            ranks.extend(full.drain(..));
            dealt.push(rank);
        }
        Some(dealt)
    }
}

/// The rows of the window that make a global batch, and their ranks. An empty window makes an empty batch.
///
/// # Errors
/// With [`Slots::causal`]: the ranks cannot each have a row whose response has two tokens or more.
pub fn pack(window: &[Row], slots: Slots, balance: Balance) -> Result<Assignment, NoCausal> {
    if window.is_empty() {
        return Ok(Assignment { ends: vec![0; slots.ranks + 1], ..Assignment::default() });
    }
    let sorted = Sorted::new(window);
    let mut loads = Loads::new(slots.ranks);
    let (largest, dealt) = sorted.largest(slots, &mut loads);
    let multi = |count: usize| window[..count].iter().filter(|row| row.resp_len > 1).count();
    let mut count = largest;
    loop {
        let by_cost = match balance {
            Balance::Lpt => None,
            Balance::Quadratic => sorted.by_cost(count, slots, |place| {
                let length = window[place as usize].length() as u64;
                length.saturating_mul(length)
            }),
            Balance::QuadraticWork => sorted.by_cost(count, slots, |place| window[place as usize].work()),
        };
        let known = || Some(dealt.clone()).filter(|dealt| dealt.len() == count);
        let mut ranks = by_cost.or_else(known).unwrap_or_else(|| sorted.by_tokens(count, &mut loads));
        let rows: Vec<_> = sorted.first(count).collect();
        // Fewer rows than ranks end the epoch: nobody gets them.
        if !slots.causal || count < slots.ranks || exchange(window, &rows, &mut ranks, slots) {
            return Ok(assignment(&rows, &ranks, slots.ranks));
        }
        if count == slots.ranks || multi(count - 1) < slots.ranks {
            return Err(NoCausal { multi: multi(largest), rows: largest });
        }
        count -= 1;
    }
}

/// How many rows of a window [`pack`] takes, without saying whose they are.
///
/// # Errors
/// As [`pack`].
pub fn count(window: &[Row], slots: Slots, balance: Balance) -> Result<usize, NoCausal> {
    if window.is_empty() {
        return Ok(0);
    }
    let count = Sorted::new(window).largest(slots, &mut Loads::new(slots.ranks)).0;
    // Each rank gets a row before another has two: where all have a causal query, none is exchanged.
    if !slots.causal || count < slots.ranks || window[..count].iter().all(|row| row.resp_len > 1) {
        return Ok(count);
    }
    pack(window, slots, balance).map(|packed| packed.rows)
}

/// Rows of lengths from 0 to `longest`, longest first, of equal lengths the later place first.
fn by_counting(window: &[Row], longest: usize) -> Vec<(i64, u32)> {
    let key = |row: &Row| longest - row.length() as usize;
    let mut next = vec![0_u32; longest + 2];
    for row in window {
        next[key(row) + 1] += 1;
    }
    // In a register: through memory each step would wait for the one before.
    let mut sum = 0;
    for next in &mut next {
        sum += *next;
        *next = sum;
    }
    let mut rows = vec![(0, 0); window.len()];
    for (place, row) in window.iter().enumerate().rev() {
        let next = &mut next[key(row)];
        rows[*next as usize] = (row.length(), place as u32);
        *next += 1;
    }
    rows
}

fn assignment(rows: &[(i64, u32)], ranks: &[u32], n: usize) -> Assignment {
    let mut ends = vec![0_u32; n + 1];
    for &rank in ranks {
        ends[rank as usize + 1] += 1;
    }
    for rank in 0..n {
        ends[rank + 1] += ends[rank];
    }
    let mut next = ends.clone();
    let mut places = vec![0; rows.len()];
    for (&(_, place), &rank) in rows.iter().zip(ranks) {
        places[next[rank as usize] as usize] = place;
        next[rank as usize] += 1;
    }
    Assignment { rows: rows.len(), places, ends }
}

/// Make sure that every rank has a row whose response has two tokens or more. A rank without one gets one from a rank with
/// several, in exchange for one of its own rows of the nearest length, or for none if the other has no room. Returns false
/// if this is not possible.
fn exchange(window: &[Row], rows: &[(i64, u32)], ranks: &mut [u32], slots: Slots) -> bool {
    let is_multi: Vec<_> = rows.iter().map(|&(_, place)| window[place as usize].resp_len > 1).collect();
    let mut multi = vec![0_usize; slots.ranks];
    for (&rank, &is_multi) in ranks.iter().zip(&is_multi) {
        multi[rank as usize] += usize::from(is_multi);
    }
    if multi.iter().all(|&count| count > 0) {
        return true;
    }
    let mut loads = vec![0_i64; slots.ranks];
    for (&(length, _), &rank) in rows.iter().zip(&*ranks) {
        loads[rank as usize] += length;
    }
    while let Some(poor) = multi.iter().position(|&count| count == 0) {
        let mut best: Option<(i64, usize, Option<usize>)> = None;
        for (given, &(length, _)) in rows.iter().enumerate() {
            let donor = ranks[given] as usize;
            if !is_multi[given] || multi[donor] < 2 {
                continue;
            }
            let mut offer = |apart: i64, taken: Option<usize>| {
                if best.is_none_or(|(least, ..)| apart < least) {
                    best = Some((apart, given, taken));
                }
            };
            for (taken, &(mine, _)) in rows.iter().enumerate() {
                let fits = loads[poor] - mine + length <= slots.tokens && loads[donor] - length + mine <= slots.tokens;
                if ranks[taken] as usize == poor && fits {
                    offer((length - mine).abs(), Some(taken));
                }
            }
            if loads[poor] + length <= slots.tokens {
                offer(length, None);
            }
        }
        let Some((_, given, taken)) = best else { return false };
        let donor = ranks[given] as usize;
        let back = taken.map_or(0, |taken| rows[taken].0);
        loads[poor] += rows[given].0 - back;
        loads[donor] += back - rows[given].0;
        ranks[given] = poor as u32;
        if let Some(taken) = taken {
            ranks[taken] = donor as u32;
        }
        multi[poor] += 1;
        multi[donor] -= 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(pairs: &[(i64, i64)]) -> Vec<Row> {
        let row = |(number, &(inst_len, resp_len))| Row {
            number: number as i64,
            inst_start: 0,
            inst_len,
            resp_start: 0,
            resp_len,
        };
        pairs.iter().enumerate().map(row).collect()
    }

    fn by_rank(found: &Assignment) -> Vec<&[u32]> {
        found.ends.windows(2).map(|ends| &found.places[ends[0] as usize..ends[1] as usize]).collect()
    }

    const SLOTS: Slots = Slots { ranks: 2, tokens: 10, causal: true };

    #[test]
    fn of_equal_lengths_the_later_row_goes_first_and_the_left_child_wins_a_tie() {
        let window = rows(&[(2, 2); 6]);
        let found = pack(&window, Slots { ranks: 3, ..SLOTS }, Balance::Lpt);
        assert_eq!(by_rank(&found.unwrap_or_default()), [[5, 1], [4, 0], [3, 2]]);
    }

    #[test]
    fn the_largest_number_of_rows_that_fit() {
        let window = rows(&[(4, 2), (4, 2), (4, 2), (4, 2), (1, 2)]);
        let found = pack(&window, SLOTS, Balance::Lpt).unwrap_or_default();
        assert_eq!((found.rows, by_rank(&found)), (4, vec![&[3, 0][..], &[2, 1]]));
        let alone = pack(&rows(&[(40, 2), (4, 2)]), SLOTS, Balance::Lpt).unwrap_or_default();
        assert_eq!((alone.rows, alone.places), (1, vec![0]));
        assert_eq!(pack(&[], SLOTS, Balance::Lpt), Ok(Assignment { ends: vec![0; 3], ..Assignment::default() }));
    }

    #[test]
    fn a_rank_without_a_causal_query_gets_one_for_the_row_of_the_nearest_length() {
        // Longest first: rows 0 and 1 to one rank each, 3 and 2 after them.
        let window = rows(&[(8, 1), (5, 3), (2, 2), (1, 1)]);
        let plain = pack(&window, Slots { tokens: 11, causal: false, ..SLOTS }, Balance::Lpt).unwrap_or_default();
        assert_eq!(by_rank(&plain), [&[0, 3][..], &[1, 2]]);
        let mended = pack(&window, Slots { tokens: 11, ..SLOTS }, Balance::Lpt).unwrap_or_default();
        assert_eq!(by_rank(&mended), [&[1, 3][..], &[0, 2]]);
    }

    #[test]
    fn fewer_rows_where_no_exchange_has_room_and_an_error_where_none_has() {
        let window = rows(&[(4, 2), (4, 2), (4, 2), (10, 1)]);
        let found = pack(&window, SLOTS, Balance::Lpt).unwrap_or_default();
        assert_eq!(found.rows, 3);
        let refused = pack(&rows(&[(4, 1), (4, 2), (4, 1)]), SLOTS, Balance::Lpt);
        assert_eq!(refused, Err(NoCausal { multi: 1, rows: 3 }));
    }

    #[test]
    fn cost_decides_among_ranks_with_room_and_tokens_where_none_is_left() {
        let window = rows(&[(6, 2), (3, 2), (3, 2), (3, 2)]);
        let lpt = pack(&window, Slots { tokens: 12, ..SLOTS }, Balance::Lpt).unwrap_or_default();
        let quadratic = pack(&window, Slots { tokens: 12, ..SLOTS }, Balance::Quadratic).unwrap_or_default();
        assert_eq!(by_rank(&lpt), [&[0, 1][..], &[3, 2]]);
        assert_eq!(by_rank(&quadratic), [&[0][..], &[3, 2, 1]]);
    }
}
