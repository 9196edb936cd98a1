//! Sums over the rows of a task that may be sampled, from the lengths of their spans alone.

use super::eligible::{Counts, Kept, Limits};
use super::source::{Buffers, Chunk, Source, Unfit};

/// Numbers of a summary.
pub const WIDTH: usize = 12;

/// Sums over rows. A row's length is that of both spans, its response already cut.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// All rows.
    pub rows_in: u64,
    /// Tokens of all rows.
    pub length: u64,
    /// Rows that may be sampled; of rows that are split, their pieces.
    pub rows: u64,
    /// Instruction tokens of these.
    pub inst: u64,
    /// Response tokens of these.
    pub resp: u64,
    /// Sum of the squares of their responses' lengths.
    pub resp_squares: u128,
    /// Sum of the squares of their lengths.
    pub squares: u128,
    /// What became of the others.
    pub counts: Counts,
    /// Rows that lose tokens.
    pub truncated: u64,
    /// Tokens that they lose.
    pub lost: u64,
}

impl Summary {
    /// Sum up a task.
    ///
    /// # Errors
    /// As [`Source::read`] has them.
    pub fn read(source: &Source, limits: &Limits, split: bool, buffers: &mut Buffers) -> Result<Self, Unfit> {
        let (mut summary, mut kept) = (Self::default(), Kept::default());
        source.read(buffers, |chunk| summary.add(&chunk, limits, split, &mut kept))?;
        Ok(summary)
    }

    /// Add the rows of a chunk. With `split` a row that is too long counts as several that fill the context, but the
    /// last: where a character ends is not looked at.
    pub fn add(&mut self, chunk: &Chunk<'_>, limits: &Limits, split: bool, kept: &mut Kept) {
        let (inst, resp) = (&chunk.columns[1], &chunk.columns[3]);
        self.rows_in += inst.len() as u64;
        self.length += inst.iter().chain(resp).sum::<u64>();
        let limits = if split { &Limits { test_whole: true, drop_long: false, ..*limits } } else { limits };
        limits.keep(chunk, &mut self.counts, kept);
        let rows = kept.rows.iter().map(|&row| (inst[row as usize], resp[row as usize]));
        for ((inst, resp), &left) in rows.zip(&kept.responses) {
            if split && left < resp {
                let whole = (resp - 1) / left;
                self.keep(inst, left, whole);
                self.keep(inst, resp - whole * left, 1);
            } else {
                self.keep(inst, left, 1);
            }
        }
        if !split {
            self.truncated += kept.cut.len() as u64;
            self.lost += kept.cut.iter().map(|&(_, lost)| lost).sum::<u64>();
        }
    }

    #[inline]
    fn keep(&mut self, inst: u64, resp: u64, times: u64) {
        let length = inst + resp;
        self.rows += times;
        self.inst += inst * times;
        self.resp += resp * times;
        self.resp_squares += u128::from(resp) * u128::from(resp * times);
        self.squares += u128::from(length) * u128::from(length * times);
    }

    /// The numbers in the order of the fields; those that are too large for their type are the largest of it.
    pub fn numbers(&self) -> [i64; WIDTH] {
        let [short, over, cut_short] = self.counts.dropped;
        let sums: [u128; WIDTH] = [
            self.rows_in.into(),
            self.length.into(),
            self.rows.into(),
            self.inst.into(),
            self.resp.into(),
            self.resp_squares,
            self.squares,
            short.into(),
            over.into(),
            cut_short.into(),
            self.truncated.into(),
            self.lost.into(),
        ];
        sums.map(|value| i64::try_from(value).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(drop_long: bool, split: bool, test_whole: bool) -> Summary {
        let (inst, resp) = (vec![3, 3, 4, 9, 10, 40], vec![1, 4, 20, 5, 5, 5]);
        let columns = [vec![0; 6], inst, vec![0; 6], resp];
        let chunk = Chunk { tokens: 109, rows: 6, first: 0, columns: &columns };
        let limits = Limits { context: 10, shortest: 2, drop_long, test_whole };
        let mut summary = Summary::default();
        summary.add(&chunk, &limits, split, &mut Kept::default());
        summary
    }

    #[test]
    fn rows_are_summed_as_they_are_cut() {
        let cut = summary(false, false, false);
        assert_eq!((cut.rows_in, cut.length, cut.rows, cut.counts.dropped), (6, 109, 2, [1, 2, 1]));
        assert_eq!((cut.inst, cut.resp, cut.truncated, cut.lost), (7, 10, 1, 14));
        assert_eq!((cut.resp_squares, cut.squares), (52, 149));
        let reference = summary(false, false, true);
        assert_eq!((reference.rows, reference.resp, reference.lost), (3, 11, 18));
        let dropped = summary(true, false, false);
        assert_eq!((dropped.rows, dropped.counts.dropped, dropped.truncated), (1, [1, 4, 0], 0));
    }

    #[test]
    fn pieces_have_the_whole_response() {
        let split = summary(false, true, false);
        assert_eq!((split.counts.dropped, split.truncated, split.lost), ([1, 2, 0], 0, 0));
        assert_eq!((split.rows, split.resp, split.inst), (1 + 4 + 5, 4 + 20 + 5, 3 + 16 + 45));
    }

    #[test]
    fn numbers_are_in_order() {
        let made = summary(false, false, false);
        assert_eq!(made.numbers(), [6, 109, 2, 7, 10, 52, 149, 1, 2, 1, 1, 14]);
        let large = Summary { squares: u128::MAX, ..made };
        assert_eq!(large.numbers()[6], i64::MAX);
    }
}
