//! Walks through the rows of a task: one random permutation after another, continued from epoch to epoch.
//!
//! The rows of an epoch are shuffled later, so only which rows it takes matters: a permutation that one epoch takes whole
//! is not drawn. Of the others a step of Fisher and Yates' shuffle is made for each row that is taken.

use super::numbers::Numbers;
use super::philox::{AHEAD, Philox};
use crate::simd::prefetch;

/// What an epoch takes of a walk.
#[derive(Clone, Debug)]
pub enum Want {
    /// At most `cap` rows, and until their responses have `budget` tokens; both are taken `repeat` times.
    Rule {
        /// None = all.
        cap: Option<u64>,
        /// How often.
        repeat: u64,
        /// None = no limit.
        budget: Option<u64>,
    },
    /// As many rows as each epoch says; further epochs take none.
    Rows(Vec<u64>),
}

/// A walk that is asked for.
#[derive(Clone, Debug)]
pub struct Walk {
    /// The name of its random numbers.
    pub stream: String,
    /// The numbers of the task's rows that it walks through, ascending; None = all that may be sampled.
    pub members: Option<Vec<u32>>,
    /// Of each epoch.
    pub want: Want,
    /// How often a row may be seen in all, before and here; None = no limit.
    pub most: Option<u32>,
    /// What earlier epochs want in place of it, and what was `most` then: those before each of these numbers, which
    /// ascend.
    pub earlier: Vec<(usize, Want, Option<u32>)>,
}

/// Rows that an epoch takes: all that may be sampled some times, and some more.
#[derive(Clone, Debug, Default)]
pub struct Taken {
    /// How often all are taken.
    pub whole: u32,
    /// The others.
    pub rows: Vec<u32>,
}

/// A walk that goes on.
///
/// Its permutations have levels: that of level n is of the rows that were seen n times at most when the walk began, so
/// that all of them were seen n + 1 times after it.
pub struct Walker<'a> {
    random: Philox,
    walk: &'a Walk,
    members: Option<&'a [u32]>,
    passes: &'a [u8],
    pool: (u32, u64),
    /// The next level, and the one from which on all rows are walked through.
    next: u32,
    all_from: u32,
    /// Rows of the present level, and tokens of their responses.
    count: u32,
    tokens: u64,
    order: Vec<u32>,
    cursor: u32,
}

impl<'a> Walker<'a> {
    /// Begin a walk.
    ///
    /// Args: `members` are places among the rows that may be sampled, whose `responses` are given, and how often they
    /// were seen before; no `passes` = never.
    #[must_use]
    pub fn new(seed: &str, walk: &'a Walk, members: Option<&'a [u32]>, responses: &Numbers, passes: &'a [u8]) -> Self {
        let pool = match members {
            None => (responses.len() as u32, responses.sum()),
            Some(rows) => (rows.len() as u32, tokens_of(rows, responses)),
        };
        let random = Philox::named(seed, &walk.stream);
        let (next, all_from) = match members {
            None => range_of(passes.iter().copied()),
            Some(rows) => range_of(rows.iter().filter_map(|&row| passes.get(row as usize).copied())),
        };
        Self { random, walk, members, passes, pool, next, all_from, count: 0, tokens: 0, order: Vec::new(), cursor: 0 }
    }

    /// Rows to walk through, and tokens of their responses.
    #[must_use]
    pub fn pool(&self) -> (u64, u64) {
        (self.pool.0.into(), self.pool.1)
    }

    /// Begin the next permutation.
    fn begin(&mut self, responses: &Numbers) {
        let level = self.next;
        self.next += 1;
        self.cursor = 0;
        if level == self.all_from {
            (self.count, self.tokens) = self.pool;
            self.order.clear();
        } else if level < self.all_from {
            let seen = |row: &u32| u32::from(self.passes[*row as usize]) <= level;
            self.order = match self.members {
                None => (0..self.pool.0).filter(seen).collect(),
                Some(rows) => rows.iter().copied().filter(seen).collect(),
            };
            (self.count, self.tokens) = (self.order.len() as u32, tokens_of(&self.order, responses));
        }
    }

    /// Take the rows of an epoch.
    pub fn epoch(&mut self, number: usize, responses: &Numbers, taken: &mut Taken) {
        let earlier = self.walk.earlier.iter().find(|(end, ..)| number < *end);
        let (want, most) = earlier.map_or((&self.walk.want, self.walk.most), |(_, want, most)| (want, *most));
        match want {
            Want::Rule { cap, repeat, budget } => {
                let rows = cap.unwrap_or(u64::MAX).min(self.pool.0.into()).saturating_mul(*repeat);
                self.take(rows, budget.map(|tokens| tokens.saturating_mul(*repeat)), most, responses, taken);
            }
            Want::Rows(rows) => self.take(rows.get(number).copied().unwrap_or(0), None, most, responses, taken),
        }
    }

    fn take(
        &mut self,
        mut left: u64,
        mut budget: Option<u64>,
        most: Option<u32>,
        responses: &Numbers,
        taken: &mut Taken,
    ) {
        while left > 0 && self.pool.0 > 0 && budget != Some(0) {
            let begins = self.cursor == self.count;
            // How often the next row was seen after it.
            if most.is_some_and(|most| self.next + u32::from(begins) > most) {
                break;
            }
            if begins {
                self.begin(responses);
            }
            let whole = left >= self.count.into() && budget.is_none_or(|tokens| tokens > self.tokens);
            if self.cursor == 0 && whole {
                match self.members {
                    _ if self.next <= self.all_from => taken.rows.extend_from_slice(&self.order),
                    None => taken.whole += 1,
                    Some(rows) => taken.rows.extend_from_slice(rows),
                }
                left -= u64::from(self.count);
                budget = budget.map(|tokens| tokens - self.tokens);
                self.cursor = self.count;
                continue;
            }
            if self.order.is_empty() {
                self.order = self.members.map_or_else(|| (0..self.count).collect(), <[u32]>::to_vec);
            }
            let count = left.min((self.count - self.cursor).into()) as u32;
            if let Some(tokens) = &mut budget {
                // One by one: how many draws are made must not depend on how many were made ahead.
                let row = self.step();
                taken.rows.push(row);
                *tokens = tokens.saturating_sub(responses.get(row as usize) as u64);
                left -= 1;
            } else {
                self.steps(count, &mut taken.rows);
                left -= u64::from(count);
            }
        }
    }

    fn step(&mut self) -> u32 {
        let place = self.cursor + self.random.below(self.count - self.cursor);
        self.order.swap(self.cursor as usize, place as usize);
        self.cursor += 1;
        self.order[self.cursor as usize - 1]
    }

    fn steps(&mut self, count: u32, rows: &mut Vec<u32>) {
        let first = self.cursor as usize;
        let mut places = [0_u32; AHEAD];
        let mut left = count as usize;
        while left > 0 {
            let some = AHEAD.min(left);
            for (step, place) in (self.cursor..).zip(&mut places[..some]) {
                *place = step + self.random.below(self.count - step);
                prefetch(&self.order[*place as usize]);
            }
            for &place in &places[..some] {
                self.order.swap(self.cursor as usize, place as usize);
                self.cursor += 1;
            }
            left -= some;
        }
        rows.extend_from_slice(&self.order[first..self.cursor as usize]);
    }
}

fn tokens_of(rows: &[u32], responses: &Numbers) -> u64 {
    rows.iter().map(|&row| responses.get(row as usize) as u64).sum()
}

/// The least and the largest of some numbers; 0 without any.
fn range_of(values: impl Iterator<Item = u8>) -> (u32, u32) {
    let range = values.fold(None, |range: Option<(u8, u8)>, value| {
        range.map_or(Some((value, value)), |(least, largest)| Some((least.min(value), largest.max(value))))
    });
    range.map_or((0, 0), |(least, largest)| (least.into(), largest.into()))
}
