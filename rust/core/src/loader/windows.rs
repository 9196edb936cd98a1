//! Windows of token files as training batches: token i is an input, token i + 1 its label.
//!
//! Packed, an end-of-text token ends a document: inputs carry the number of their document within the window, and what
//! follows an end-of-text is not to be predicted from it.

use crate::loader::numbers::{Numbers, each};
use crate::simd::{Level, Work, run};

/// The label of a slot that is not supervised: what cross entropy of torch ignores by default.
pub const IGNORED: i64 = -100;

/// Where one window is written to: equally long.
#[derive(Debug)]
pub struct Row<'a> {
    /// The tokens but the last, then 0.
    pub input_ids: &'a mut [i64],
    /// The tokens but the first, then [`IGNORED`].
    pub labels: &'a mut [i64],
    /// If packed: the end-of-text id, and numbers of documents from 0; the padding is a document of its own.
    pub packed: Option<(i64, &'a mut [i64])>,
}

/// The window's tokens as bytes, and the id of one, as numpy casts it: what int64 cannot hold wraps.
struct Fill<'a, const N: usize, Id> {
    tokens: &'a [[u8; N]],
    id: Id,
    row: Row<'a>,
}

impl<const N: usize, Id: Fn([u8; N]) -> i64> Work for Fill<'_, N, Id> {
    type Output = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let Self { tokens, id: id_of, row: Row { input_ids, labels, packed } } = self;
        // The sign bits of all ids: a negative id shows in them without a branch in the loop.
        let mut signs = tokens.last().map_or(0, |&token| id_of(token));
        let used = tokens.len().saturating_sub(1).min(input_ids.len());
        let (input_ids, input_padding) = input_ids.split_at_mut(used);
        let (labels, label_padding) = labels.split_at_mut(used);
        let following = tokens.get(1..).unwrap_or_default();
        if let Some((eos, doc_ids)) = packed {
            for (((into, label), token), next) in input_ids.iter_mut().zip(&mut *labels).zip(tokens).zip(following) {
                let id = id_of(*token);
                signs |= id;
                *into = id;
                *label = if id == eos { IGNORED } else { id_of(*next) };
            }
            // A loop of its own: a running number cannot be vectorised, and would keep the copies above from it.
            let mut document = 0;
            let (doc_ids, document_padding) = doc_ids.split_at_mut(used);
            for (into, &id) in doc_ids.iter_mut().zip(&*input_ids) {
                *into = document;
                document += i64::from(id == eos);
            }
            document_padding.fill(doc_ids.last().map_or(0, |last| last + 1));
        } else {
            for (((into, label), token), next) in input_ids.iter_mut().zip(labels).zip(tokens).zip(following) {
                let id = id_of(*token);
                signs |= id;
                *into = id;
                *label = id_of(*next);
            }
        }
        input_padding.fill(0);
        label_padding.fill(IGNORED);
        signs >= 0
    }
}

/// Write one window of at most one token more than there are inputs; whether all its ids are 0 or more as int64.
#[allow(clippy::unnecessary_cast)] // only for some kinds
pub fn fill(tokens: Numbers<'_>, row: Row<'_>) -> bool {
    each!(tokens.kind, Number => {
        let id = |bytes| Number::from_le_bytes(bytes) as i64;
        run(Level::best(), Fill { tokens: tokens.bytes.as_chunks().0, id, row })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loader::numbers::Kind;

    type Filled = (Vec<i64>, Vec<i64>, Vec<i64>, bool);

    fn filled(kind: &str, tokens: &[i128], row: Row<'_>) -> bool {
        let width: usize = kind[1..].parse().unwrap();
        let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes().into_iter().take(width)).collect();
        fill(Numbers::new(&bytes, Kind::parse(kind).unwrap()), row)
    }

    fn packed(kind: &str, tokens: &[i128], slots: usize, eos: i64) -> Filled {
        let (mut ids, mut labels, mut docs) = (vec![7; slots], vec![7; slots], vec![7; slots]);
        let row = Row { input_ids: &mut ids, labels: &mut labels, packed: Some((eos, &mut docs)) };
        let good = filled(kind, tokens, row);
        (ids, labels, docs, good)
    }

    fn plain(kind: &str, tokens: &[i128], slots: usize) -> (Vec<i64>, Vec<i64>, bool) {
        let (mut ids, mut labels) = (vec![7; slots], vec![7; slots]);
        let good = filled(kind, tokens, Row { input_ids: &mut ids, labels: &mut labels, packed: None });
        (ids, labels, good)
    }

    #[test]
    fn a_window_is_shifted_by_one() {
        assert_eq!(plain("u2", &[1, 2, 65_535, 4], 3), (vec![1, 2, 65_535], vec![2, 65_535, 4], true));
        assert_eq!(plain("i1", &[1, 2], 3), (vec![1, 0, 0], vec![2, -100, -100], true));
        assert_eq!(plain("u1", &[], 2), (vec![0, 0], vec![-100, -100], true));
        assert_eq!(plain("u1", &[5], 1), (vec![0], vec![-100], true));
    }

    #[test]
    fn documents_are_numbered_and_none_is_predicted_from_the_end_of_another() {
        let tokens = [2, 5, 2, 2, 6, 2];
        let expected = (vec![2, 5, 2, 2, 6], vec![-100, 2, -100, -100, 2], vec![0, 1, 1, 2, 3], true);
        assert_eq!(packed("u4", &tokens, 5, 2), expected);
        let expected = (vec![5, 2, 0, 0], vec![2, -100, -100, -100], vec![0, 0, 1, 1], true);
        assert_eq!(packed("u4", &tokens[1..4], 4, 2), expected);
        assert_eq!(packed("i8", &[9], 2, 9), (vec![0, 0], vec![-100, -100], vec![0, 0], true));
    }

    #[test]
    fn an_id_that_is_none_is_told() {
        assert_eq!(plain("i4", &[1, -2, 3], 2), (vec![1, -2], vec![-2, 3], false));
        assert_eq!(plain("u8", &[1, 2, u64::MAX.into()], 2), (vec![1, 2], vec![2, -1], false));
        assert!(!packed("i2", &[-1, 2, 3], 2, 2).3);
        assert!(plain("u4", &[u32::MAX.into(), u32::MAX.into()], 1).2);
    }
}
