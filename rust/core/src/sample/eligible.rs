//! The rows of a task that may be sampled: those that are neither too short nor too long, cut to the context.
//!
//! The algorithm is data_io's sampler (docs/format.md section 5); the default profile corrects its defects.

use super::source::Chunk;

/// A context that no row has.
pub const NEVER: u64 = i64::MAX as u64;
/// Rows of each kind of loss that are named.
pub const EXAMPLES: usize = 2;

/// What decides which rows may be sampled.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Longest row in tokens.
    pub context: u64,
    /// Shortest response in tokens.
    pub shortest: u64,
    /// Drop rows that are longer than the context, in place of cutting their responses.
    pub drop_long: bool,
    /// Test the length of a response before it is cut, as data_io does.
    pub test_whole: bool,
}

/// What became of the rows of a task.
#[derive(Clone, Debug)]
pub struct Counts {
    /// Rows that are left out: the response is too short, the row too long, the response too short once it is cut.
    pub dropped: [u64; 3],
    /// The numbers from 1 of the first rows of each of these kinds, and of rows that are cut.
    pub examples: [Vec<u64>; 4],
    /// The smallest context with which a row is left whose response is long enough.
    pub least_context: u64,
}

impl Default for Counts {
    fn default() -> Self {
        Self { dropped: [0; 3], examples: Default::default(), least_context: NEVER }
    }
}

/// Rows of a chunk that may be sampled.
#[derive(Default)]
pub struct Kept {
    /// Their places in the chunk, ascending.
    pub rows: Vec<u32>,
    /// Tokens of their responses, cut.
    pub responses: Vec<u64>,
    /// The number among these rows of each that is cut, and the tokens that it loses.
    pub cut: Vec<(u32, u64)>,
}

impl Limits {
    /// Find the rows of a chunk that may be sampled, and count the others.
    pub fn keep(&self, chunk: &Chunk<'_>, counts: &mut Counts, kept: &mut Kept) {
        kept.rows.clear();
        kept.responses.clear();
        kept.cut.clear();
        let note = |counts: &mut Counts, kind: usize, row: usize| {
            if counts.examples[kind].len() < EXAMPLES {
                counts.examples[kind].push(chunk.first + row as u64 + 1);
            }
        };
        for (row, (&inst, &resp)) in chunk.columns[1].iter().zip(&chunk.columns[3]).enumerate() {
            let allowed = self.context - inst.min(self.context);
            let (fits, left, least) = if self.drop_long {
                (resp <= allowed, resp, resp)
            } else {
                (allowed >= 1, resp.min(allowed), self.shortest.max(1))
            };
            let tested = if self.test_whole { resp } else { left };
            let lost = if resp < self.shortest {
                0
            } else {
                counts.least_context = counts.least_context.min(inst + least);
                if !fits {
                    1
                } else if tested < self.shortest {
                    2
                } else {
                    if left < resp {
                        note(counts, 3, row);
                        kept.cut.push((kept.rows.len() as u32, resp - left));
                    }
                    kept.rows.push(row as u32);
                    kept.responses.push(left);
                    continue;
                }
            };
            counts.dropped[lost] += 1;
            note(counts, lost, row);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_kept_cut_and_dropped() {
        let (inst, resp) = (vec![2, 2, 9, 12, 2, 7], vec![3, 1, 3, 3, 30, 4]);
        let columns = [vec![0; 6], inst, vec![0; 6], resp];
        let chunk = Chunk { tokens: 0, rows: 6, first: 10, columns: &columns };
        let limits = Limits { context: 10, shortest: 2, drop_long: false, test_whole: false };
        let (mut counts, mut kept) = (Counts::default(), Kept::default());
        limits.keep(&chunk, &mut counts, &mut kept);
        assert_eq!((kept.rows, kept.responses, kept.cut), (vec![0, 4, 5], vec![3, 8, 3], vec![(1, 22), (2, 1)]));
        assert_eq!((counts.dropped, counts.least_context), ([1, 1, 1], 4));
        assert_eq!(counts.examples, [vec![12], vec![14], vec![13], vec![15, 16]]);
        for (limits, rows) in
            [(Limits { test_whole: true, ..limits }, vec![0, 2, 4, 5]), (Limits { drop_long: true, ..limits }, vec![0])]
        {
            let mut kept = Kept::default();
            limits.keep(&chunk, &mut Counts::default(), &mut kept);
            assert_eq!(kept.rows, rows);
        }
    }
}
