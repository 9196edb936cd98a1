//! A global batch in the middle of an epoch: rows from one on, of which one rank's are kept.

use crate::loader::pack::{Balance, Index, Passed, Row, Slots, pack};

/// A global batch after which more rows of its epoch come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plain {
    /// Rows of all ranks.
    pub rows: usize,
    /// Their inputs.
    pub tokens: i64,
    /// The row after the last of them.
    pub next: i64,
    /// The rank's rows, in the order of assignment.
    pub mine: Vec<Row>,
}

/// The global batch that begins at a row; none where that is for the caller to say: near the end of the epoch, or if ranks
/// cannot each have the rows that they need.
#[must_use]
pub fn plain(
    index: &Index<'_>,
    start: usize,
    passed: Passed,
    slots: Slots,
    balance: Balance,
    rank: usize,
) -> Option<Plain> {
    let room = slots.tokens.saturating_mul(slots.ranks as i64);
    let window = index.window(start, room, passed);
    if window.iter().map(Row::length).sum::<i64>() < room {
        return None;
    }
    let packed = pack(&window, slots, balance).ok()?;
    // After a whole window there may be no row.
    if packed.rows < slots.ranks || packed.rows == window.len() {
        return None;
    }
    let mine = &packed.places[packed.ends[rank] as usize..packed.ends[rank + 1] as usize];
    let rows = &window[..packed.rows];
    Some(Plain {
        rows: rows.len(),
        tokens: rows.iter().map(Row::length).sum(),
        next: rows.last()?.number + 1,
        mine: mine.iter().map(|&place| window[place as usize]).collect(),
    })
}
