//! Rows that repeat items of benchmarks: an index of all items, and the scores of rows against it.
//!
//! A row is looked at twice. Its word 5-grams are tested against a Bloom filter of all questions' 5-grams; most rows end
//! there. Of the others the rare 3-grams name the questions that can reach their threshold at all, and only these are
//! scored.

pub mod build;
pub mod index;
pub mod score;

#[cfg(test)]
mod tests;

/// Tokens of a seed: a question is looked at only if it shares one with the row.
pub const SEED: usize = 5;
/// Tokens of a gram whose weight is shared out.
pub const GRAM: usize = 3;

const BASE: u64 = 0x9E37_79B9_7F4A_7C15;
/// Of a seed's first token.
const BASE_TO_THE_LAST: u64 = BASE.wrapping_mul(BASE).wrapping_mul(BASE).wrapping_mul(BASE);

/// The hash of a few tokens, in their order.
#[inline]
#[must_use]
pub fn gram(tokens: &[u32]) -> u64 {
    mixed(tokens.iter().fold(0, |sum, &token| appended(sum, token)))
}

/// The hashes of all seeds of some tokens, in order, as `gram` has them.
#[inline]
pub fn seeds(tokens: &[u32]) -> impl Iterator<Item = u64> {
    let (first, rest) = tokens.split_at_checked(SEED - 1).unwrap_or_default();
    let mut sum = first.iter().fold(0, |sum, &token| appended(sum, token));
    rest.iter().zip(tokens).map(move |(&last, &first)| {
        let whole = appended(sum, last);
        sum = whole.wrapping_sub((u64::from(first) + 1).wrapping_mul(BASE_TO_THE_LAST));
        mixed(whole)
    })
}

#[inline]
fn appended(sum: u64, token: u32) -> u64 {
    sum.wrapping_mul(BASE).wrapping_add(u64::from(token) + 1)
}

#[inline]
fn mixed(sum: u64) -> u64 {
    let mixed = (sum ^ (sum >> 32)).wrapping_mul(0xE703_7ED1_A0B4_28DB);
    mixed ^ (mixed >> 29)
}

/// The share of its weight that a question of so many tokens has to have in a field.
#[must_use]
pub fn threshold(tokens: usize) -> f64 {
    match tokens {
        0..=12 => 1.0,
        13..32 => 1.0 - 0.25 * (tokens - 12) as f64 / 20.0,
        _ => 0.75,
    }
}

/// The weight of a gram that `shared` of `questions` have.
#[must_use]
pub fn weight(questions: u32, shared: u32) -> f64 {
    (1.0 + f64::from(questions) / f64::from(shared.max(1))).ln()
}

/// The first occurrence of each gram of some tokens, in order.
pub(crate) fn distinct_grams(tokens: &[u32], into: &mut Vec<u64>, seen: &mut rustc_hash::FxHashSet<u64>) {
    into.clear();
    seen.clear();
    into.extend(tokens.windows(GRAM).map(gram).filter(|&one| seen.insert(one)));
}

/// What is left of a threshold when rounding has taken its part.
const ROUNDING: f64 = 1.0 - 1e-9;

/// A gram of a question: how many questions have it, its hash, its weight.
pub(crate) type Weighed = (u32, u64, f64);

/// How many of a question's rarest grams come before those that together stay below its threshold. `grams` are sorted then.
/// A field without any of them does not reach the threshold.
pub(crate) fn rarest(grams: &mut [Weighed], tokens: usize) -> usize {
    grams.sort_unstable_by_key(|&(count, one, _)| (count, one));
    let mut rest: f64 = grams.iter().map(|one| one.2).sum();
    let enough = threshold(tokens) * rest * ROUNDING;
    let taken = grams.iter().take_while(|one| {
        let take = rest >= enough;
        rest -= one.2;
        take
    });
    taken.count()
}
