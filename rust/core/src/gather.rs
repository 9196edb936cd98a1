//! Spans of token ids, one after another, in a narrower type.

use crate::simd::{Level, Simd, Work, run};

/// An integer that ids are cast to; what it cannot hold wraps, as numpy's casts do.
pub trait Id: Copy {
    /// The low bits.
    fn of(id: u32) -> Self;
}

impl Id for u8 {
    fn of(id: u32) -> Self {
        id as Self
    }
}

impl Id for u16 {
    fn of(id: u32) -> Self {
        id as Self
    }
}

impl Id for i32 {
    fn of(id: u32) -> Self {
        id as Self
    }
}

/// The spans do not fit.
#[derive(Debug, PartialEq, Eq)]
pub enum Misfit {
    /// This span does not lie in the tokens.
    Span(usize),
    /// The spans hold more or fewer ids than there is room for.
    Room(usize),
}

impl std::fmt::Display for Misfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Span(number) => write!(f, "got a span (number {number}) that does not lie in the tokens"),
            Self::Room(held) => write!(f, "got spans of {held} ids in all; expected as many as there is room for"),
        }
    }
}

impl std::error::Error for Misfit {}

struct Gather<'a, I, T> {
    tokens: &'a [u32],
    spans: I,
    out: &'a mut [T],
}

impl<I: Iterator<Item = (u64, u64)>, T: Id> Work for Gather<'_, I, T> {
    type Output = Result<u32, Misfit>;

    #[inline(always)]
    fn run(self, _: impl Simd) -> Self::Output {
        let Self { tokens, spans, out } = self;
        let (mut largest, mut held, room) = (0, 0, out.len());
        let mut rest = out;
        for (number, (start, length)) in spans.enumerate() {
            let from = usize::try_from(start).ok().and_then(|start| tokens.get(start..));
            let ids = from.and_then(|from| from.get(..usize::try_from(length).ok()?)).ok_or(Misfit::Span(number))?;
            held += ids.len();
            let (mine, behind) = std::mem::take(&mut rest).split_at_mut_checked(ids.len()).ok_or(Misfit::Room(held))?;
            for (into, &id) in mine.iter_mut().zip(ids) {
                largest = id.max(largest);
                *into = T::of(id);
            }
            rest = behind;
        }
        if held == room { Ok(largest) } else { Err(Misfit::Room(held)) }
    }
}

/// Fill `out` with the ids of spans (start and length in `tokens`), one after another; the largest id of them, or 0.
///
/// # Errors
/// A span outside `tokens`, or spans that are not as long as `out`; part of `out` may be filled then.
pub fn gather<T: Id>(tokens: &[u32], spans: impl Iterator<Item = (u64, u64)>, out: &mut [T]) -> Result<u32, Misfit> {
    run(Level::best(), Gather { tokens, spans, out })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_follow_each_other() {
        let tokens = [5, 6, 7, 70_000, 9];
        let mut out = [0_u16; 5];
        assert_eq!(gather(&tokens, [(3, 2), (0, 0), (0, 3)].into_iter(), &mut out), Ok(70_000));
        assert_eq!(out, [70_000_u32 as u16, 9, 5, 6, 7]);
        let mut wide = [0_i32; 1];
        assert_eq!(gather(&[u32::MAX], [(0, 1)].into_iter(), &mut wide), Ok(u32::MAX));
        assert_eq!(wide, [-1]);
        assert_eq!(gather::<u8>(&tokens, std::iter::empty(), &mut []), Ok(0));
    }

    #[test]
    fn what_does_not_fit_is_said() {
        let mut out = [0_u8; 3];
        assert_eq!(gather(&[1, 2], [(0, 1), (1, 2)].into_iter(), &mut out), Err(Misfit::Span(1)));
        assert_eq!(gather(&[1, 2], [(u64::MAX, 1)].into_iter(), &mut out), Err(Misfit::Span(0)));
        assert_eq!(gather(&[1, 2], [(1, u64::MAX)].into_iter(), &mut out), Err(Misfit::Span(0)));
        assert_eq!(gather(&[1, 2], [(0, 2), (0, 2)].into_iter(), &mut out), Err(Misfit::Room(4)));
        assert_eq!(gather(&[1, 2], [(0, 2)].into_iter(), &mut out), Err(Misfit::Room(2)));
    }
}
