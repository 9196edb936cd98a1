//! Draws that are a function of the row, and the logarithm that they and weights are made with.
//!
//! Every machine gives the same bits: the logarithm is made of operations that processors round exactly.

use xxhash_rust::xxh3::xxh3_64_with_seed;

const SCALE: f64 = 9_007_199_254_740_992.0;

/// ln x, within one unit in the last place; the C library's differs between processors.
pub fn ln(x: f64) -> f64 {
    libm::log(x)
}

/// Standard Gumbel noise, of a draw within (0, 1).
pub fn gumbel(uniform: f64) -> f64 {
    -ln(-ln(uniform))
}

/// Uniform draws of the rows of one task.
pub struct Draws {
    /// `<salt>\t<task>:`, and then the number of a row.
    text: Vec<u8>,
    named: usize,
    seed: u64,
}

impl Draws {
    /// Those of a task.
    pub fn new(task: &str, seed: u64, salt: &str) -> Self {
        let text = format!("{salt}\t{task}:").into_bytes();
        Self { named: text.len(), text, seed }
    }

    /// That of the row with this number; within (0, 1).
    pub fn of(&mut self, row: u64) -> f64 {
        let mut digits = [0; 20];
        let mut at = digits.len();
        let mut rest = row;
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.text.truncate(self.named);
        self.text.extend_from_slice(&digits[at..]);
        let hash = xxh3_64_with_seed(&self.text, self.seed);
        // The last one would be rounded to 1, whose noise is infinite.
        (((hash >> 11) as f64 + 0.5) / SCALE).min(1.0 - f64::EPSILON / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draw_is_the_hash_of_salt_and_row() {
        for (row, seed, salt) in [(0, 0, ""), (7, 7, "target"), (u64::MAX, 1, "fit"), (1_000_000, u64::MAX, "x")] {
            let hash = xxh3_64_with_seed(format!("{salt}\ta__b.jsonl:{row}").as_bytes(), seed);
            let mut draws = Draws::new("a__b.jsonl", seed, salt);
            draws.of(12_345_678);
            assert_eq!(draws.of(row), ((hash >> 11) as f64 + 0.5) / SCALE);
        }
    }

    #[test]
    fn the_least_and_the_greatest_draw_have_finite_noise() {
        assert!(gumbel(0.5 / SCALE).is_finite());
        assert!(gumbel(1.0 - f64::EPSILON / 2.0).is_finite());
    }

    #[test]
    fn ln_has_the_same_bits_everywhere() {
        let bits = [1e-8, 0.3, 0.999, 1.0, 1.5, 10.0, 12345.678].map(|x| ln(x).to_bits());
        let expected = [1e-8f64, 0.3, 0.999, 1.0, 1.5, 10.0, 12345.678].map(|x| x.ln().to_bits() as i64);
        for (one, other) in bits.iter().zip(expected) {
            assert!((*one as i64 - other).abs() <= 1);
        }
    }
}
