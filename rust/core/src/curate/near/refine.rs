//! Candidates within families, rows that share so much that a key of theirs tells little: what few of them have decides.

use super::signature::{Signer, grams};
use super::sketch::{Kind, Malformed, Sketch};
use super::{Alive, Settings};

/// A gram that as many members have tells little.
const COMMON: u16 = 16;
/// A member with fewer grams that few members have is told by more frequent ones, up to this many.
const FEW: usize = 8;
/// A gram that one of so many members has is the family's.
const OF_FAMILY: usize = 4;
/// The largest bucket whose members are all compared with each other; of a larger one, the best-ranked ones are.
const SMALL: usize = 16;
const PROBES: usize = 2;
/// Rows that a row is compared with.
const MOST: usize = 12;
/// Tokens for which there is one counter: many grams of a family are the same.
const SHARED: usize = 4;
/// Counters, at least and at most.
const COUNTERS: [usize; 2] = [1 << 10, 1 << 26];

/// Pairs held in a pass, with repetitions, about: a family of short rows has hundreds a member.
const AT_ONCE: usize = 1 << 23;

/// What a family gives.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Refined {
    /// Pairs of members, the smaller first, sorted and distinct.
    pub edges: Vec<(u32, u32)>,
    /// Members that were not compared with all that they resemble.
    pub unverified: usize,
}

/// Refines one family after another; its buffers are used again.
pub struct Refiner {
    settings: Settings,
    signer: Signer,
    grams: Vec<u64>,
    own: Vec<(u16, u64)>,
    counts: Vec<u16>,
    keys: Vec<u64>,
    keyed: Vec<(u64, u32)>,
    pairs: Vec<(u32, u32)>,
    at_once: usize,
}

impl Refiner {
    /// A refiner for a run with these settings.
    pub fn new(settings: &Settings) -> Self {
        Self {
            settings: settings.clone(),
            signer: Signer::new(settings),
            grams: Vec::new(),
            own: Vec::new(),
            counts: Vec::new(),
            keys: Vec::new(),
            keyed: Vec::new(),
            pairs: Vec::new(),
            at_once: AT_ONCE,
        }
    }

    /// Candidates among the members of a family, which are in rank order.
    ///
    /// # Errors
    /// A member is not a sketch.
    pub fn refine(&mut self, members: &[&[u8]], alive: Alive<'_>) -> Result<Refined, Malformed> {
        let sketches: Vec<Sketch<'_>> = members.iter().map(|bytes| Sketch::read(bytes)).collect::<Result<_, _>>()?;
        let Some(kind) = sketches.first().map(|sketch| sketch.kind) else { return Ok(Refined::default()) };
        if !self.count(&sketches, alive) || !self.sign(&sketches, kind, alive) {
            return Ok(Refined::default());
        }
        Ok(self.pair(sketches.len()))
    }

    /// The distinct grams of a member.
    fn read(&mut self, sketch: &Sketch<'_>) {
        self.grams.clear();
        grams(sketch, &self.settings, &mut self.grams);
        self.grams.sort_unstable();
        self.grams.dedup();
    }

    /// Count grams by the low bits of their hashes: of the few that share a counter, most are rare, so few counts are wrong.
    fn count(&mut self, sketches: &[Sketch<'_>], alive: Alive<'_>) -> bool {
        let total: usize = sketches.iter().map(|row| row.instruction.tokens.len() + row.response.tokens.len()).sum();
        self.counts.clear();
        self.counts.resize((total / SHARED).next_power_of_two().clamp(COUNTERS[0], COUNTERS[1]), 0);
        for sketch in sketches {
            if !alive() {
                return false;
            }
            self.read(sketch);
            let last = self.counts.len() - 1;
            for &gram in &self.grams {
                let count = &mut self.counts[gram as usize & last];
                *count = count.saturating_add(1);
            }
        }
        true
    }

    /// Make the keys of all members from what few members have.
    fn sign(&mut self, sketches: &[Sketch<'_>], kind: Kind, alive: Alive<'_>) -> bool {
        let of_family = u16::try_from(sketches.len() / OF_FAMILY).unwrap_or(u16::MAX).max(COMMON);
        self.keyed.clear();
        for (member, sketch) in (0..).zip(sketches) {
            if !alive() {
                return false;
            }
            self.read(sketch);
            let last = self.counts.len() - 1;
            self.own.clear();
            let counted = self.grams.iter().map(|&gram| (self.counts[gram as usize & last], gram));
            self.own.extend(counted.filter(|&(count, _)| count < of_family));
            let rare = self.own.iter().filter(|&&(count, _)| count < COMMON).count();
            let told = rare.max(FEW);
            if told < self.own.len() {
                self.own.select_nth_unstable(told);
                self.own.truncate(told);
            }
            self.keys.clear();
            if self.own.is_empty() {
                self.signer.bands_of(kind, self.grams.iter().copied(), &mut self.keys);
            } else {
                self.signer.bands_of(kind, self.own.iter().map(|&(_, gram)| gram), &mut self.keys);
            }
            self.keyed.extend(self.keys.iter().map(|&key| (key, member)));
        }
        true
    }

    /// Pair members that share keys. Members are taken in passes, so that pairs held with repetitions are bounded.
    fn pair(&mut self, members: usize) -> Refined {
        self.keyed.sort_unstable();
        let keep = self.settings.keep;
        let probes = |bucket: &[(u64, u32)]| if bucket.len() <= SMALL { SMALL } else { PROBES.max(keep) };
        let buckets = || self.keyed.chunk_by(|left, right| left.0 == right.0);
        let repeated: usize = buckets().map(|bucket| bucket.len() * probes(bucket).min(bucket.len())).sum();
        let most = MOST.max(keep);
        let mut skipped = vec![false; members];
        let mut edges = Vec::new();
        let mut others: Vec<(usize, u32)> = Vec::new();
        let passes = repeated / self.at_once + 1;
        for pass in 0..passes {
            let some = members * pass / passes..members * (pass + 1) / passes;
            self.pairs.clear();
            for bucket in buckets() {
                let probes = probes(bucket);
                for (place, &(_, member)) in bucket.iter().enumerate() {
                    if some.contains(&(member as usize)) {
                        self.pairs.extend(bucket[..place].iter().take(probes).map(|&(_, other)| (member, other)));
                        if place > probes {
                            skipped[member as usize] = true;
                        }
                    }
                }
            }
            self.pairs.sort_unstable();
            for row in self.pairs.chunk_by(|left, right| left.0 == right.0) {
                let Some(&(member, _)) = row.first() else { continue };
                others.clear();
                // The more keys two rows share, the more alike they are.
                let same = row.chunk_by(|left, right| left.1 == right.1);
                others.extend(same.map(|same| (usize::MAX - same.len(), same[0].1)));
                if others.len() > most {
                    others.select_nth_unstable(most);
                    others.truncate(most);
                    skipped[member as usize] = true;
                }
                edges.extend(others.iter().map(|&(_, other)| (other, member)));
            }
        }
        edges.sort_unstable();
        Refined { edges, unverified: skipped.iter().filter(|&&skipped| skipped).count() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_do_not_depend_on_how_many_are_held_at_once() {
        let mut refiner = Refiner::new(&Settings::default());
        // Buckets of one to forty members, which repeat.
        let keyed: Vec<(u64, u32)> = (0..5000u64).map(|at| (at * at % 311, (at * 7919 % 400) as u32)).collect();
        let mut refined = |at_once| {
            (refiner.keyed, refiner.at_once) = (keyed.clone(), at_once);
            refiner.pair(400)
        };
        let whole = refined(AT_ONCE);
        assert!(whole.edges.len() > 1000 && whole.unverified > 10, "{} {}", whole.edges.len(), whole.unverified);
        for at_once in [1, 100, 5000] {
            assert_eq!(refined(at_once), whole);
        }
    }
}
