//! Draws of a mixture: which source comes next, and which of its samples, from nothing but counts.
//!
//! Samples come in the order of a permutation that is computed place by place, so that billions of them cost no memory
//! and any place is reached at once: the swap-or-not shuffle (Hoang, Morris and Rogaway, "An enciphering scheme based on
//! a card shuffle", CRYPTO 2012), which works on any number of cards. Sources come at the rate of their probabilities
//! in every 1,024 draws, give or take one or two, in random order: each of the draws has a stratum of its own.

/// Rounds of the shuffle; more make no order that a test of samples tells from a random one.
const ROUNDS: usize = 64;
/// Draws that share out the strata among them.
const BLOCK: u64 = 1 << STRATUM;
const STRATUM: u32 = 10;

/// The finalizer of `SplitMix64` (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
const fn mixed(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// A number that follows from a key and a count.
const fn random(key: u64, count: u64) -> u64 {
    mixed(mixed(count.wrapping_add(0x9E37_79B9_7F4A_7C15)) ^ key)
}

/// A permutation of `0..cards`.
#[derive(Clone, Debug)]
pub struct Permutation {
    cards: u64,
    key: u64,
    shifts: [u64; ROUNDS],
}

impl Permutation {
    /// The permutation of a key and a number, of one card or more.
    #[must_use]
    pub fn new(key: u64, number: u64, cards: u64) -> Self {
        let key = random(key, number);
        let cards = cards.max(1);
        let mut shifts = [0; ROUNDS];
        for (round, shift) in shifts.iter_mut().enumerate() {
            // The upper half of a product: every card as often as any other, to one part in 2^64 / cards.
            *shift = ((u128::from(random(key, round as u64)) * u128::from(cards)) >> 64) as u64;
        }
        Self { cards, key, shifts }
    }

    /// The card at a place below the number of cards.
    #[must_use]
    pub fn at(&self, place: u64) -> u64 {
        let mut card = place % self.cards;
        for (round, &shift) in self.shifts.iter().enumerate() {
            let partner = if shift >= card { shift - card } else { self.cards - (card - shift) };
            let higher = card.max(partner);
            if random(self.key ^ (round as u64 + 1) << 56, higher) >> 63 == 1 {
                card = partner;
            }
        }
        card
    }
}

/// The source of each of `count` draws from number `first` on.
///
/// A source's range ends, exclusively, at its bound of 2^64; bounds ascend, and a source whose bound is that of the one
/// before is never drawn.
#[must_use]
pub fn sources(key: u64, first: u64, count: usize, bounds: &[u64]) -> Vec<u32> {
    let mut block: Option<(u64, Permutation)> = None;
    (first..)
        .take(count)
        .map(|draw| {
            let number = draw / BLOCK;
            let (_, permutation) = match &mut block {
                Some(block) if block.0 == number => block,
                other => other.insert((number, Permutation::new(key, number, BLOCK))),
            };
            let stratum = permutation.at(draw % BLOCK);
            let point = stratum << (64 - STRATUM) | random(!key, draw) >> STRATUM;
            // The last bound means 2^64, which does not fit into a u64.
            bounds.partition_point(|&bound| bound <= point.min(u64::MAX - 1)) as u32
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_card_once_and_none_at_its_place_more_often_than_by_chance() {
        for cards in [1, 2, 3, 5, 64, 1000, 4097] {
            let mut fixed = 0;
            for number in 0..50 {
                let permutation = Permutation::new(7, number, cards);
                let mut seen = vec![false; cards as usize];
                for place in 0..cards {
                    let card = permutation.at(place);
                    assert!(!std::mem::replace(&mut seen[card as usize], true));
                    fixed += u32::from(card == place);
                }
            }
            // One fixed point a permutation is expected, whatever the number of cards.
            assert!(cards == 1 || (20..90).contains(&fixed), "{cards} cards: {fixed} fixed points in 50 permutations");
        }
    }

    #[test]
    fn all_orders_of_three_cards_come_equally_often() {
        let mut counts = std::collections::BTreeMap::new();
        for number in 0..6000 {
            let permutation = Permutation::new(11, number, 3);
            *counts.entry([permutation.at(0), permutation.at(1), permutation.at(2)]).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 6);
        assert!(counts.values().all(|count| (850..1150).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_block_of_draws_has_each_source_at_its_rate() {
        let share = |part: f64| (part * 2_f64.powi(64)) as u64;
        let bounds = [share(0.5), share(0.5), share(0.503), u64::MAX];
        for block in 0..20 {
            let drawn = sources(5, block * BLOCK, BLOCK as usize, &bounds);
            let count = |source| drawn.iter().filter(|&&drawn| drawn == source).count();
            assert_eq!((count(0), count(1)), (512, 0));
            assert!((3..=4).contains(&count(2)));
            assert_eq!(count(3), 512 - count(2));
        }
        let drawn = sources(5, 0, 3000, &bounds);
        assert_eq!(drawn[1500..1600], sources(5, 1500, 100, &bounds));
    }
}
