//! Logistic regression over hashed word features.
//!
//! Every machine gives the same bits: sums are taken one after another, in the order of rows and buckets, and nothing but
//! additions, multiplications, divisions and square roots is taken from the processor, which rounds them exactly.

use super::features::Counts;

/// What training does.
#[derive(Clone, Copy, Debug)]
pub struct Training {
    /// Steps of gradient descent over all rows.
    pub steps: usize,
    /// Of learning.
    pub rate: f64,
    /// The share of the last step that the next one keeps.
    pub momentum: f64,
    /// Half of it, times the square of the weights' length, is added to the mean loss.
    pub l2: f64,
}

/// e^x, within two units in the last place; the C library's differs between processors.
pub fn exp(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    let x = x.clamp(-708.0, 708.0);
    let turns = (x * std::f64::consts::LOG2_E).round();
    // ln 2 in two parts: the first has so few bits that its product is exact.
    let rest = (x - turns * 6.931_471_803_691_238e-1) - turns * 1.908_214_929_270_587_7e-10;
    let series = (1..=13).rev().fold(1.0, |sum, at| 1.0 + rest * sum / f64::from(at));
    series * f64::from_bits(((turns as i64 + 1023) as u64) << 52)
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + exp(-x))
}

/// The features of rows: counts, and one over the length of each row.
struct Rows<'a> {
    counts: &'a Counts,
    inverse: Vec<f64>,
}

impl<'a> Rows<'a> {
    fn new(counts: &'a Counts) -> Self {
        let inverse = |ends: &[i64]| {
            let square = |&count: &u32| f64::from(count) * f64::from(count);
            let length = counts.counts[ends[0] as usize..ends[1] as usize].iter().map(square).sum::<f64>().sqrt();
            if length == 0.0 { 0.0 } else { 1.0 / length }
        };
        Self { counts, inverse: counts.indptr.windows(2).map(inverse).collect() }
    }

    fn row(&self, row: usize) -> impl Iterator<Item = (usize, f64)> + '_ {
        let span = self.counts.indptr[row] as usize..self.counts.indptr[row + 1] as usize;
        let counts = self.counts.counts[span.clone()].iter().map(|&count| f64::from(count));
        self.counts.indices[span].iter().map(|&bucket| bucket as usize).zip(counts)
    }

    fn score(&self, row: usize, weights: &[f64], bias: f64) -> f64 {
        self.inverse[row] * self.row(row).map(|(bucket, count)| weights[bucket] * count).sum::<f64>() + bias
    }
}

/// The probability of each row.
pub fn probabilities(counts: &Counts, weights: &[f64], bias: f64) -> Vec<f64> {
    let rows = Rows::new(counts);
    (0..rows.inverse.len()).map(|row| sigmoid(rows.score(row, weights, bias))).collect()
}

/// The weights and the bias of rows that are positive or not; `begin` is asked before each step whether to go on.
pub fn train(
    counts: &Counts,
    positive: &[bool],
    buckets: usize,
    training: Training,
    begin: impl Fn(usize) -> bool,
) -> (Vec<f64>, f64) {
    let rows = Rows::new(counts);
    let (mut weights, mut bias) = (vec![0.0; buckets], 0.0);
    let (mut speed, mut bias_speed) = (vec![0.0; buckets], 0.0);
    let mut gradient = vec![0.0; buckets];
    let share = 1.0 / positive.len().max(1) as f64;
    for _ in (0..training.steps).take_while(|&step| begin(step)) {
        gradient.fill(0.0);
        let mut bias_gradient = 0.0;
        for (row, &positive) in positive.iter().enumerate() {
            let error = (sigmoid(rows.score(row, &weights, bias)) - f64::from(u8::from(positive))) * share;
            bias_gradient += error;
            let error = error * rows.inverse[row];
            for (bucket, count) in rows.row(row) {
                gradient[bucket] += error * count;
            }
        }
        for ((weight, speed), gradient) in weights.iter_mut().zip(&mut speed).zip(&gradient) {
            *speed = training.momentum * *speed - training.rate * (gradient + training.l2 * *weight);
            *weight += *speed;
        }
        bias_speed = training.momentum * bias_speed - training.rate * bias_gradient;
        bias += bias_speed;
    }
    (weights, bias)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_close_to_the_library_s() {
        let mut largest = 0.0_f64;
        for at in -70_000..=70_000 {
            let x = f64::from(at) * 0.01;
            largest = largest.max((exp(x) / x.exp() - 1.0).abs());
        }
        assert!(largest < 5e-16, "{largest:e}");
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(-1e9) > 0.0 && exp(1e9).is_finite() && exp(f64::NAN).is_nan());
    }

    #[test]
    fn a_word_of_one_side_decides() {
        let mut counts = Counts::default();
        for row in 0..8_u32 {
            counts.push(&mut [row % 2, 2]);
        }
        let positive: Vec<bool> = (0..8).map(|row| row % 2 == 0).collect();
        let training = Training { steps: 300, rate: 4.0, momentum: 0.9, l2: 1e-4 };
        let (weights, bias) = train(&counts, &positive, 3, training, |_| true);
        let found = probabilities(&counts, &weights, bias);
        assert!(found.iter().zip(&positive).all(|(&p, &positive)| (p > 0.9) == positive), "{found:?}");
        assert_eq!(train(&counts, &positive, 3, training, |_| false), (vec![0.0; 3], 0.0));
    }

    #[test]
    fn a_row_without_features_has_the_probability_of_the_bias() {
        let mut counts = Counts::default();
        counts.push(&mut []);
        assert_eq!(probabilities(&counts, &[5.0], 0.0), [0.5]);
    }
}
