//! Spans of token ids, one after another, in a narrower type. Ids come as bytes, four of them each, the lowest first.

use num_traits::AsPrimitive;

use crate::simd::{Level, Work, run};

/// An integer that ids are cast to; what it cannot hold wraps, as in numpy's casts.
pub trait Id: Copy {
    /// The low bits.
    fn of(id: u32) -> Self;
}

impl<T: Copy + 'static> Id for T
where
    u32: AsPrimitive<T>,
{
    fn of(id: u32) -> Self {
        id.as_()
    }
}

/// The spans do not fit.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// This span is outside the tokens.
    #[error("got a span (number {0}) that does not lie in the tokens")]
    Span(usize),
    /// The spans hold more or fewer ids than there is room for.
    #[error("got spans of {0} ids in all; expected as many as there is room for")]
    Room(usize),
}

/// Bytes of an id.
pub const WIDTH: usize = 4;

struct Gather<'a, I, T> {
    ids: &'a [u8],
    spans: I,
    out: &'a mut [T],
}

impl<I: Iterator<Item = (u64, u64)>, T: Id> Work for Gather<'_, I, T> {
    type Output = Result<u32, Misfit>;

    #[inline(always)]
    fn run(self) -> Self::Output {
        let Self { ids, spans, out } = self;
        let (mut largest, mut held, room) = (0, 0, out.len());
        let mut rest = out;
        for (number, (start, length)) in spans.enumerate() {
            let span = within(ids, start, length).ok_or(Misfit::Span(number))?;
            let count = span.len() / WIDTH;
            held += count;
            let (mine, after) = std::mem::take(&mut rest).split_at_mut_checked(count).ok_or(Misfit::Room(held))?;
            for (into, bytes) in mine.iter_mut().zip(span.as_chunks::<WIDTH>().0) {
                let id = u32::from_le_bytes(*bytes);
                largest = id.max(largest);
                *into = T::of(id);
            }
            rest = after;
        }
        if held == room { Ok(largest) } else { Err(Misfit::Room(held)) }
    }
}

fn within(ids: &[u8], start: u64, length: u64) -> Option<&[u8]> {
    let start = usize::try_from(start).ok()?.checked_mul(WIDTH)?;
    let length = usize::try_from(length).ok()?.checked_mul(WIDTH)?;
    ids.get(start..start.checked_add(length)?)
}

/// Fill `out` with the ids of spans (start and length, in ids), one after another; the largest id of them, or 0.
///
/// # Errors
/// A span outside `ids`, or spans that are not as long as `out`; part of `out` may be filled then.
pub fn gather<T: Id>(ids: &[u8], spans: impl Iterator<Item = (u64, u64)>, out: &mut [T]) -> Result<u32, Misfit> {
    run(Level::best(), Gather { ids, spans, out })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(ids: &[u32]) -> Vec<u8> {
        ids.iter().flat_map(|id| id.to_le_bytes()).collect()
    }

    #[test]
    fn spans_follow_each_other() {
        let ids = bytes(&[5, 6, 7, 70_000, 9]);
        let mut out = [0_u16; 5];
        assert_eq!(gather(&ids, [(3, 2), (0, 0), (0, 3)].into_iter(), &mut out), Ok(70_000));
        assert_eq!(out, [70_000_u32 as u16, 9, 5, 6, 7]);
        let mut wide = [0_i32; 1];
        assert_eq!(gather(&bytes(&[u32::MAX]), [(0, 1)].into_iter(), &mut wide), Ok(u32::MAX));
        assert_eq!(wide, [-1]);
        assert_eq!(gather::<u8>(&ids, std::iter::empty(), &mut []), Ok(0));
    }

    #[test]
    fn what_does_not_fit_is_said() {
        let ids = bytes(&[1, 2]);
        let mut out = [0_u8; 3];
        assert_eq!(gather(&ids, [(0, 1), (1, 2)].into_iter(), &mut out), Err(Misfit::Span(1)));
        assert_eq!(gather(&ids, [(u64::MAX, 1)].into_iter(), &mut out), Err(Misfit::Span(0)));
        assert_eq!(gather(&ids, [(1, u64::MAX)].into_iter(), &mut out), Err(Misfit::Span(0)));
        assert_eq!(gather(&ids, [(u64::MAX / 4, 2)].into_iter(), &mut out), Err(Misfit::Span(0)));
        assert_eq!(gather(&ids, [(0, 2), (0, 2)].into_iter(), &mut out), Err(Misfit::Room(4)));
        assert_eq!(gather(&ids, [(0, 2)].into_iter(), &mut out), Err(Misfit::Room(2)));
    }
}
