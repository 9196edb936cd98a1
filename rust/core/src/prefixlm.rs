//! A rank's batch of rows for a `PrefixLM`: one array of slots after another, written in place.

use crate::numbers::Numbers;
use crate::pack::Row;

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

/// Write rows into the slots, one after another.
///
/// # Errors
/// The rows make no batch; the slots are then partly written.
pub fn fill<'a>(
    tokens: Numbers<'_>,
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
        let lies = tokens.cast(inst.0, prefix) && tokens.cast(resp.0, causal) && tokens.cast(resp.0, targets);
        if !lies {
            return Err(Odd::Row(number));
        }
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
