//! Importance weights of rows by hashed word features: counts over all rows, and sums of weights over each row.

use super::features::{Hash, Terms};

/// The buckets of one row's features after another.
#[derive(Debug)]
pub struct Features {
    terms: Terms,
    buckets: u32,
    hash: Hash,
}

impl Features {
    /// Those of texts to come.
    pub fn new(ngrams: usize, buckets: u32, hash: Hash) -> Self {
        Self { terms: Terms::new(ngrams), buckets, hash }
    }

    #[inline]
    fn visit<'a>(&mut self, texts: impl IntoIterator<Item = &'a str>, mut see: impl FnMut(usize)) {
        for text in texts {
            self.terms.read(text);
            match self.hash {
                // A loop of its own: the hash is most of the work.
                Hash::Xxh3 => self.terms.iter().for_each(|term| see(Hash::Xxh3.bucket(term, self.buckets) as usize)),
                Hash::Sha256 => {
                    self.terms.iter().for_each(|term| see(Hash::Sha256.bucket(term, self.buckets) as usize))
                }
            }
        }
    }

    /// Add how often each bucket occurs in a row to `counts`.
    pub fn count<'a>(&mut self, texts: impl IntoIterator<Item = &'a str>, counts: &mut [i64]) {
        self.visit(texts, |bucket| counts[bucket] += 1);
    }

    /// How many features a row has, and the sum of their weights, one term after another, for each target.
    ///
    /// `weights` has for each bucket the weights of all targets.
    pub fn score<'a>(&mut self, texts: impl IntoIterator<Item = &'a str>, weights: &[f64], sums: &mut [f64]) -> u64 {
        let mut features = 0;
        let targets = sums.len();
        sums.fill(0.0);
        if let [sum] = sums {
            self.visit(texts, |bucket| {
                *sum += weights[bucket];
                features += 1;
            });
        } else {
            self.visit(texts, |bucket| {
                let mine = &weights[bucket * targets..(bucket + 1) * targets];
                sums.iter_mut().zip(mine).for_each(|(sum, weight)| *sum += weight);
                features += 1;
            });
        }
        features
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_sums_are_of_all_texts() {
        let mut features = Features::new(2, 50, Hash::Xxh3);
        let mut counts = [0; 50];
        features.count(["A b", "b c"], &mut counts);
        assert_eq!(counts.iter().sum::<i64>(), 6);
        assert_eq!(counts[Hash::Xxh3.bucket(b"a b", 50) as usize], 1);
        let weights: Vec<f64> = (0..50).flat_map(|bucket| [f64::from(bucket), 1.0]).collect();
        let mut sums = [9.0; 2];
        assert_eq!(features.score(["A b", "b c"], &weights, &mut sums), 6);
        let expected: f64 = (0..50).map(|bucket| bucket as f64 * counts[bucket] as f64).sum();
        assert_eq!(sums, [expected, 6.0]);
        let first: Vec<f64> = weights.iter().step_by(2).copied().collect();
        let mut sum = [9.0];
        assert_eq!(features.score(["A b", "b c"], &first, &mut sum), 6);
        assert_eq!(sum, [expected]);
        assert_eq!(features.score(["", " "], &first, &mut sum), 0);
        assert_eq!(sum, [0.0]);
    }
}
