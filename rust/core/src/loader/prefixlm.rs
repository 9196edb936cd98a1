//! A rank's batch of rows for a `PrefixLM`: one array of slots after another, written in place.

use crate::loader::numbers::Numbers;
use crate::loader::pack::Row;

/// The label that no loss counts.
pub const IGNORED: i32 = -100;

/// The arrays of a batch, all of the same number of slots.
#[derive(Debug)]
pub struct Slots<'a> {
    /// Token ids: each row's instruction, then its response without the last token.
    pub inputs: &'a mut [i32],
    /// What each input predicts.
    pub labels: &'a mut [i32],
    /// Place in the row.
    pub position_ids: &'a mut [i32],
    /// Tokens of each row's instruction.
    pub prefix_lens: &'a mut [i32],
    /// Inputs of each row's response.
    pub causal_lens: &'a mut [i32],
    /// Where rows begin, and the end of the last one.
    pub cu_seqlens: &'a mut [i32],
    /// The number of each slot's row in the batch, that of the padding being one more; if wanted.
    pub doc_ids: Option<&'a mut [i32]>,
}

/// What a batch holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Slots that are filled.
    pub total_seqlen: i64,
    /// Rows.
    pub numseqs: i64,
    /// Tokens of the longest instruction.
    pub max_seqlen_prefix: i64,
    /// Inputs of the longest response.
    pub max_seqlen_causal: i64,
    /// Inputs of the longest row.
    pub max_seqlen_all: i64,
}

/// Why rows make no batch.
#[derive(Debug, PartialEq, Eq)]
pub enum Odd {
    /// This row has an empty text, or does not lie in the tokens.
    Row(usize),
    /// They have more inputs than there are slots, or as many rows.
    Room,
}

/// Token ids that rows point into.
pub trait Ids {
    /// Cast as many ids as `out` holds, from `start` on, to int32; false if they are not all there.
    fn cast(&self, start: usize, out: &mut [i32]) -> bool;
}

impl Ids for Numbers<'_> {
    fn cast(&self, start: usize, out: &mut [i32]) -> bool {
        Numbers::cast(self, start, out)
    }
}

/// Write rows into the slots, one after another.
///
/// # Errors
/// The rows make no batch; the slots are then partly written.
pub fn fill<'a>(
    tokens: &impl Ids,
    rows: impl Iterator<Item = &'a Row>,
    target_only: bool,
    slots: &mut Slots<'_>,
) -> Result<Sizes, Odd> {
    let mut sizes = Sizes::default();
    let (mut first, mut number) = (0, 0);
    let room = slots.inputs.len();
    for row in rows {
        let span = |start: i64, len: i64| {
            Some((usize::try_from(start).ok()?, usize::try_from(len).ok().filter(|&len| len > 0)?))
        };
        let inst = span(row.inst_start, row.inst_len).ok_or(Odd::Row(number))?;
        let resp = span(row.resp_start, row.resp_len).ok_or(Odd::Row(number))?;
        let middle = first + inst.1;
        let end = middle + resp.1 - 1;
        // One slot of cu_seqlens is for the end of the last row.
        if end > room || number + 1 >= room {
            return Err(Odd::Room);
        }
        let inputs = &mut slots.inputs[first..end];
        let (prefix, causal) = inputs.split_at_mut(inst.1);
        let labels = &mut slots.labels[first..end];
        let (ignored, targets) = labels.split_at_mut(inst.1 - 1);
        if !tokens.cast(inst.0, prefix) || !tokens.cast(resp.0, targets) {
            return Err(Odd::Row(number));
        }
        // Read once: an array in files costs a call to the system.
        causal.copy_from_slice(&targets[..causal.len()]);
        if target_only {
            ignored.fill(IGNORED);
        } else {
            ignored.copy_from_slice(&prefix[1..]);
        }
        for (place, out) in slots.position_ids[first..end].iter_mut().enumerate() {
            *out = place as i32;
        }
        if let Some(ids) = &mut slots.doc_ids {
            ids[first..end].fill(number as i32);
        }
        slots.prefix_lens[number] = inst.1 as i32;
        slots.causal_lens[number] = (resp.1 - 1) as i32;
        slots.cu_seqlens[number] = first as i32;
        sizes.max_seqlen_prefix = sizes.max_seqlen_prefix.max(inst.1 as i64);
        sizes.max_seqlen_causal = sizes.max_seqlen_causal.max(resp.1 as i64 - 1);
        sizes.max_seqlen_all = sizes.max_seqlen_all.max((end - first) as i64);
        first = end;
        number += 1;
    }
    slots.inputs[first..].fill(0);
    slots.labels[first..].fill(IGNORED);
    slots.position_ids[first..].fill(0);
    slots.prefix_lens[number..].fill(0);
    slots.causal_lens[number..].fill(0);
    if let Some(end) = slots.cu_seqlens.get_mut(number) {
        *end = first as i32;
        slots.cu_seqlens[number + 1..].fill(0);
    }
    if let Some(ids) = &mut slots.doc_ids {
        ids[first..].fill(number as i32);
    }
    sizes.total_seqlen = first as i64;
    sizes.numseqs = number as i64;
    Ok(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loader::numbers::Kind;

    fn filled(rows: &[(i64, i64, i64, i64)], slots: usize, target_only: bool) -> Result<(Sizes, Vec<Vec<i32>>), Odd> {
        let tokens: Vec<u8> = (10..30).collect();
        let rows: Vec<_> = rows
            .iter()
            .map(|&(inst_start, inst_len, resp_start, resp_len)| Row {
                number: 0,
                inst_start,
                inst_len,
                resp_start,
                resp_len,
            })
            .collect();
        let mut arrays = vec![vec![7; slots]; 7];
        let mut each = arrays.iter_mut().map(Vec::as_mut_slice);
        let mut next = || each.next().unwrap_or_default();
        let mut out = Slots {
            inputs: next(),
            labels: next(),
            position_ids: next(),
            prefix_lens: next(),
            causal_lens: next(),
            cu_seqlens: next(),
            doc_ids: Some(next()),
        };
        let tokens = Numbers::new(&tokens, Kind::parse("u1").ok_or(Odd::Room)?);
        fill(&tokens, rows.iter(), target_only, &mut out).map(|sizes| (sizes, arrays))
    }

    #[test]
    fn rows_one_after_another_and_padding_behind() {
        let found = filled(&[(0, 2, 5, 3), (8, 1, 2, 2)], 8, true);
        let sizes =
            Sizes { total_seqlen: 6, numseqs: 2, max_seqlen_prefix: 2, max_seqlen_causal: 2, max_seqlen_all: 4 };
        let arrays = vec![
            vec![10, 11, 15, 16, 18, 12, 0, 0],
            vec![-100, 15, 16, 17, 12, 13, -100, -100],
            vec![0, 1, 2, 3, 0, 1, 0, 0],
            vec![2, 1, 0, 0, 0, 0, 0, 0],
            vec![2, 1, 0, 0, 0, 0, 0, 0],
            vec![0, 4, 6, 0, 0, 0, 0, 0],
            vec![0, 0, 0, 0, 1, 1, 2, 2],
        ];
        assert_eq!(found, Ok((sizes, arrays)));
        let all = filled(&[(0, 3, 5, 2)], 8, false).map(|(_, arrays)| arrays[1].clone());
        assert_eq!(all, Ok(vec![11, 12, 15, 16, -100, -100, -100, -100]));
    }

    #[test]
    fn what_makes_no_batch_is_refused() {
        for odd in [(0, 0, 5, 2), (0, 2, 5, 0), (-1, 2, 5, 2), (19, 2, 5, 2), (0, 2, 19, 2), (i64::MAX, 2, 0, 2)] {
            assert_eq!(filled(&[(0, 2, 5, 2), odd], 20, true), Err(Odd::Row(1)));
        }
        assert_eq!(filled(&[(0, 5, 5, 5)], 8, true), Err(Odd::Room));
        assert_eq!(filled(&[(0, 1, 5, 1); 4], 4, true), Err(Odd::Room));
        assert!(filled(&[(0, 1, 5, 1); 3], 4, true).is_ok());
    }
}
