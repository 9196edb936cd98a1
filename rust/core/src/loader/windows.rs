//! Windows of token files as training batches: token i is an input, token i + 1 its label.
//!
//! Packed, an end-of-text token ends a document: inputs carry the number of their document within the window, and what
//! follows an end-of-text is not to be predicted from it.

use crate::simd::{Level, Simd, Work, run};

/// The label of a slot that is not supervised: what cross entropy of torch ignores by default.
pub const IGNORED: i64 = -100;

/// An integer that token ids are stored as.
pub trait Token: Copy {
    /// The id, as numpy casts it: what int64 cannot hold wraps.
    fn id(self) -> i64;
}

macro_rules! tokens {
    ($($kind:ty),*) => {
        $(impl Token for $kind {
            #[inline(always)]
            fn id(self) -> i64 {
                self as i64
            }
        })*
    };
}

tokens!(u8, i8, u16, i16, u32, i32, u64, i64);

/// Where one window is written to: equally long.
#[derive(Debug)]
pub struct Row<'a> {
    /// The tokens but the last, then 0.
    pub input_ids: &'a mut [i64],
    /// The tokens but the first, then [`IGNORED`].
    pub labels: &'a mut [i64],
    /// If packed: the end-of-text id, and numbers of documents from 0; what is behind the tokens is one of its own.
    pub packed: Option<(i64, &'a mut [i64])>,
}

struct Fill<'a, T> {
    tokens: &'a [T],
    row: Row<'a>,
}

impl<T: Token> Work for Fill<'_, T> {
    type Output = bool;

    #[inline(always)]
    fn run(self, _: impl Simd) -> bool {
        let Self { tokens, row: Row { input_ids, labels, packed } } = self;
        // Sign bits of all ids: one that is negative shows in them, and no branch is in the loop.
        let mut signs = tokens.last().map_or(0, |token| token.id());
        let used = tokens.len().saturating_sub(1).min(input_ids.len());
        let (input_ids, input_padding) = input_ids.split_at_mut(used);
        let (labels, label_padding) = labels.split_at_mut(used);
        let following = tokens.get(1..).unwrap_or_default();
        if let Some((eos, doc_ids)) = packed {
            for (((into, label), token), next) in input_ids.iter_mut().zip(&mut *labels).zip(tokens).zip(following) {
                let id = token.id();
                signs |= id;
                *into = id;
                *label = if id == eos { IGNORED } else { next.id() };
            }
            // Apart: a running number is no work for vectors, and would keep the copies above from being some.
            let mut document = 0;
            let (doc_ids, document_padding) = doc_ids.split_at_mut(used);
            for (into, &id) in doc_ids.iter_mut().zip(&*input_ids) {
                *into = document;
                document += i64::from(id == eos);
            }
            document_padding.fill(doc_ids.last().map_or(0, |last| last + 1));
        } else {
            for (((into, label), token), next) in input_ids.iter_mut().zip(labels).zip(tokens).zip(following) {
                let id = token.id();
                signs |= id;
                *into = id;
                *label = next.id();
            }
        }
        input_padding.fill(0);
        label_padding.fill(IGNORED);
        signs >= 0
    }
}

/// Write one window of at most one token more than there are inputs; whether all its ids are 0 or more as int64.
pub fn fill<T: Token>(tokens: &[T], row: Row<'_>) -> bool {
    run(Level::best(), Fill { tokens, row })
}

#[cfg(test)]
mod tests {
    use super::*;

    type Filled = (Vec<i64>, Vec<i64>, Vec<i64>, bool);

    fn packed<T: Token>(tokens: &[T], slots: usize, eos: i64) -> Filled {
        let (mut ids, mut labels, mut docs) = (vec![7; slots], vec![7; slots], vec![7; slots]);
        let row = Row { input_ids: &mut ids, labels: &mut labels, packed: Some((eos, &mut docs)) };
        let good = fill(tokens, row);
        (ids, labels, docs, good)
    }

    fn plain<T: Token>(tokens: &[T], slots: usize) -> (Vec<i64>, Vec<i64>, bool) {
        let (mut ids, mut labels) = (vec![7; slots], vec![7; slots]);
        let good = fill(tokens, Row { input_ids: &mut ids, labels: &mut labels, packed: None });
        (ids, labels, good)
    }

    #[test]
    fn a_window_is_shifted_by_one() {
        assert_eq!(plain(&[1_u16, 2, 65_535, 4], 3), (vec![1, 2, 65_535], vec![2, 65_535, 4], true));
        assert_eq!(plain(&[1_i8, 2], 3), (vec![1, 0, 0], vec![2, -100, -100], true));
        assert_eq!(plain::<u8>(&[], 2), (vec![0, 0], vec![-100, -100], true));
        assert_eq!(plain(&[5_u8], 1), (vec![0], vec![-100], true));
    }

    #[test]
    fn documents_are_numbered_and_none_is_predicted_from_the_end_of_another() {
        let tokens = [2_u32, 5, 2, 2, 6, 2];
        let expected = (vec![2, 5, 2, 2, 6], vec![-100, 2, -100, -100, 2], vec![0, 1, 1, 2, 3], true);
        assert_eq!(packed(&tokens, 5, 2), expected);
        let expected = (vec![5, 2, 0, 0], vec![2, -100, -100, -100], vec![0, 0, 1, 1], true);
        assert_eq!(packed(&tokens[1..4], 4, 2), expected);
        assert_eq!(packed(&[9_i64], 2, 9), (vec![0, 0], vec![-100, -100], vec![0, 0], true));
    }

    #[test]
    fn an_id_that_is_none_is_told() {
        assert_eq!(plain(&[1_i32, -2, 3], 2), (vec![1, -2], vec![-2, 3], false));
        assert_eq!(plain(&[1_u64, 2, u64::MAX], 2), (vec![1, 2], vec![2, -1], false));
        assert!(!packed(&[-1_i16, 2, 3], 2, 2).3);
        assert!(plain(&[u32::MAX, u32::MAX], 1).2);
    }
}
