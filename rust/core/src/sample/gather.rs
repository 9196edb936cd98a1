//! Spans of token ids, one after another, in fewer bytes. Ids come as bytes, four of them each, the lowest first.

use crate::simd::{Level, Work, run};

/// The spans do not fit.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// This span is outside the tokens.
    #[error("got a span (number {0}) that does not lie in the tokens")]
    Span(usize),
    /// The spans hold more or fewer ids than there is room for.
    #[error("got spans of {0} ids in all; expected as many as there is room for")]
    Room(usize),
    /// Ids are not cut to so many bytes.
    #[error("got ids of {0} bytes; expected 1, 2 or 4")]
    Width(usize),
}

/// Bytes of an id.
pub const WIDTH: usize = 4;

struct Gather<'a, I, const W: usize> {
    ids: &'a [u8],
    spans: I,
    out: &'a mut [u8],
}

impl<I: Iterator<Item = (u64, u64)>, const W: usize> Work for Gather<'_, I, W> {
    type Output = Result<u32, Misfit>;

    #[inline(always)]
    fn run(self) -> Self::Output {
        let Self { ids, spans, out } = self;
        let (out, more) = out.as_chunks_mut::<W>();
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
                into.copy_from_slice(&bytes[..W]);
            }
            rest = after;
        }
        if held == room && more.is_empty() { Ok(largest) } else { Err(Misfit::Room(held)) }
    }
}

fn within(ids: &[u8], start: u64, length: u64) -> Option<&[u8]> {
    let start = usize::try_from(start).ok()?.checked_mul(WIDTH)?;
    let length = usize::try_from(length).ok()?.checked_mul(WIDTH)?;
    ids.get(start..start.checked_add(length)?)
}

/// Fill `out` with the lowest `width` bytes (1, 2 or 4) of the ids of spans (start and length, in ids), one after another;
/// the largest id of them, or 0.
///
/// # Errors
/// A span outside `ids`, or spans that are not as long as `out`; part of `out` may be filled then.
pub fn gather(
    ids: &[u8],
    spans: impl Iterator<Item = (u64, u64)>,
    width: usize,
    out: &mut [u8],
) -> Result<u32, Misfit> {
    match width {
        1 => run(Level::best(), Gather::<_, 1> { ids, spans, out }),
        2 => run(Level::best(), Gather::<_, 2> { ids, spans, out }),
        WIDTH => run(Level::best(), Gather::<_, WIDTH> { ids, spans, out }),
        _ => Err(Misfit::Width(width)),
    }
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
        let mut out = [0; 10];
        assert_eq!(gather(&ids, [(3, 2), (0, 0), (0, 3)].into_iter(), 2, &mut out), Ok(70_000));
        assert_eq!(out, [0x70, 0x11, 9, 0, 5, 0, 6, 0, 7, 0]);
        let mut wide = [0; 4];
        assert_eq!(gather(&bytes(&[u32::MAX]), [(0, 1)].into_iter(), 4, &mut wide), Ok(u32::MAX));
        assert_eq!(wide, [0xFF; 4]);
        assert_eq!(gather(&ids, std::iter::empty(), 1, &mut []), Ok(0));
    }

    #[test]
    fn what_does_not_fit_is_said() {
        let ids = bytes(&[1, 2]);
        let mut out = [0; 3];
        assert_eq!(gather(&ids, [(0, 1), (1, 2)].into_iter(), 1, &mut out), Err(Misfit::Span(1)));
        assert_eq!(gather(&ids, [(u64::MAX, 1)].into_iter(), 1, &mut out), Err(Misfit::Span(0)));
        assert_eq!(gather(&ids, [(1, u64::MAX)].into_iter(), 1, &mut out), Err(Misfit::Span(0)));
        assert_eq!(gather(&ids, [(u64::MAX / 4, 2)].into_iter(), 1, &mut out), Err(Misfit::Span(0)));
        assert_eq!(gather(&ids, [(0, 2), (0, 2)].into_iter(), 1, &mut out), Err(Misfit::Room(4)));
        assert_eq!(gather(&ids, [(0, 2)].into_iter(), 1, &mut out), Err(Misfit::Room(2)));
        assert_eq!(gather(&ids, [(0, 1)].into_iter(), 2, &mut out), Err(Misfit::Room(1)));
        assert_eq!(gather(&ids, [(0, 1)].into_iter(), 3, &mut out), Err(Misfit::Width(3)));
    }
}
