//! The keys by which candidates meet: bands of MinHash, with a guard in each of what must be equal.

use super::documents::sampled;
use super::grams::{hash, mix};
use super::sketch::{Kind, Sketch};
use super::{Fields, NumberGuard, Settings};
use crate::simd::{Level, Work, run};

/// The low bits of a key, which say its kind.
pub const KIND: u64 = 3;
/// A band of a signature.
pub const BAND: u64 = 0;
/// A gram of a document, chosen by its hash: of two documents of which one is part of the other.
pub const SAMPLED: u64 = 1;
/// All that must be equal, and all tokens.
pub const EQUAL: u64 = 2;

/// Adjacent grams of a document of which one is chosen.
const WINDOW: usize = 32;
/// Permutations that are computed together.
const LANES: usize = 32;

/// Permutations of 32-bit numbers: `(number ^ flip) * factor` modulo 2^32, with an odd factor.
///
/// The numbers are hashes, so that which of them comes first is decided by their own randomness; the test of the curve
/// shows that no better permutations are needed.
struct Permutations {
    bands: usize,
    rows: usize,
    flips: Vec<[u32; LANES]>,
    factors: Vec<[u32; LANES]>,
}

impl Permutations {
    fn new(bands: usize, rows: usize) -> Self {
        let blocks = (bands * rows).div_ceil(LANES);
        let mut state = 0x5eed_u64;
        // SplitMix64.
        let mut next = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            (mixed >> 32) as u32
        };
        let flips = (0..blocks).map(|_| std::array::from_fn(|_| next())).collect();
        let factors = (0..blocks).map(|_| std::array::from_fn(|_| next() | 1)).collect();
        Self { bands, rows, flips, factors }
    }
}

/// The smallest value of each permutation.
struct Smallest<'a> {
    permutations: &'a Permutations,
    grams: &'a [u32],
    out: &'a mut Vec<u32>,
}

impl Work for Smallest<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        self.out.clear();
        for (flips, factors) in self.permutations.flips.iter().zip(&self.permutations.factors) {
            let mut smallest = [u32::MAX; LANES];
            for &gram in self.grams {
                for lane in 0..LANES {
                    smallest[lane] = smallest[lane].min((gram ^ flips[lane]).wrapping_mul(factors[lane]));
                }
            }
            self.out.extend_from_slice(&smallest);
        }
    }
}

/// Makes the keys of rows; its buffers are used again.
pub struct Signer {
    settings: Settings,
    level: Level,
    pairs: Permutations,
    documents: Permutations,
    grams: Vec<u64>,
    short: Vec<u32>,
    smallest: Vec<u32>,
}

impl Signer {
    /// A signer for a run with these settings.
    pub fn new(settings: &Settings) -> Self {
        Self::at(settings, Level::best())
    }

    /// One that uses what a level has; all give the same keys.
    pub fn at(settings: &Settings, level: Level) -> Self {
        Self {
            pairs: Permutations::new(settings.bands, settings.rows),
            documents: Permutations::new(settings.document_bands, settings.document_rows),
            settings: settings.clone(),
            level,
            grams: Vec::new(),
            short: Vec::new(),
            smallest: Vec::new(),
        }
    }

    /// Append the keys of a row, distinct ones. Its condition is part of all of them, if it has one.
    pub fn keys(&mut self, sketch: &Sketch<'_>, condition: Option<&str>, keys: &mut Vec<u64>) {
        let settings = &self.settings;
        let salt = mix(condition.map_or(0, |condition| hash(condition.as_bytes())), 1);
        let (guard, equal) = if settings.fields != Fields::Pair {
            let field = if settings.fields == Fields::Instruction { &sketch.instruction } else { &sketch.response };
            if field.is_blank() {
                return;
            }
            (Some(salt).filter(|_| field.tokens.len() >= settings.min_instruction), mix(salt, field.identity()))
        } else if sketch.kind == Kind::Document {
            let guard = mix(salt, 2);
            (Some(guard), mix(guard, sketch.response.identity()))
        } else {
            let numbers = match settings.number_guard {
                NumberGuard::Both => mix(sketch.instruction.numbers, sketch.response.numbers),
                NumberGuard::Instruction => sketch.instruction.numbers,
                NumberGuard::Off => 0,
            };
            // What rules 2 and 4 want equal is part of the guard: labels, and short instructions.
            let strong = sketch.response.tokens.len() >= settings.min_response;
            let long = sketch.instruction.tokens.len() >= settings.min_instruction;
            let (instruction, response) = (sketch.instruction.identity(), sketch.response.identity());
            let guard = mix(salt, mix(numbers, 3));
            let equal = mix(mix(guard, instruction), response);
            let guard = mix(mix(guard, if long { 0 } else { instruction }), if strong { 0 } else { response });
            ((long || strong).then_some(guard), equal)
        };
        keys.push(equal & !KIND | EQUAL);
        let Some(guard) = guard else { return };
        self.grams.clear();
        grams(sketch, &self.settings, &mut self.grams);
        self.bands(sketch.kind, guard, keys);
        if sketch.kind == Kind::Document && self.settings.fields == Fields::Pair {
            let sampling = mix(guard, 4);
            let first = keys.len();
            sampled(&self.grams, WINDOW, |gram| keys.push(mix(sampling, gram) & !KIND | SAMPLED));
            keys[first..].sort_unstable();
            let mut kept = first;
            for place in first..keys.len() {
                if kept == first || keys[kept - 1] != keys[place] {
                    keys[kept] = keys[place];
                    kept += 1;
                }
            }
            keys.truncate(kept);
        }
    }

    /// Append the keys of the bands of `grams`, if there are any.
    pub(super) fn bands_of(&mut self, kind: Kind, grams: impl Iterator<Item = u64>, keys: &mut Vec<u64>) {
        self.grams.clear();
        self.grams.extend(grams);
        self.bands(kind, 0, keys);
    }

    fn bands(&mut self, kind: Kind, guard: u64, keys: &mut Vec<u64>) {
        if self.grams.is_empty() {
            return;
        }
        self.short.clear();
        self.short.extend(self.grams.iter().map(|gram| (gram >> 32) as u32));
        let permutations = match kind {
            Kind::Pair => &self.pairs,
            Kind::Document => &self.documents,
        };
        run(self.level, Smallest { permutations, grams: &self.short, out: &mut self.smallest });
        let bands = self.smallest.chunks_exact(permutations.rows).take(permutations.bands);
        keys.extend((1..).zip(bands).map(|(band, smallest)| {
            let key = smallest.iter().fold(mix(guard, band), |key, &value| mix(key, u64::from(value)));
            key & !KIND | BAND
        }));
    }
}

/// Append the grams that a signature is of: those of a document; those of both fields of a pair, without the response's
/// if it is a label.
pub(super) fn grams(sketch: &Sketch<'_>, settings: &Settings, out: &mut Vec<u64>) {
    let instruction = sketch.instruction.tokens.threes();
    let response = sketch.response.tokens.threes();
    match settings.fields {
        Fields::Pair if sketch.kind == Kind::Document => out.extend(sketch.response.tokens.fives()),
        Fields::Pair => {
            // Odd and even, so that a gram of one field is none of the other.
            out.extend(instruction.map(|gram| mix(gram, 5)));
            if sketch.response.tokens.len() >= settings.min_response {
                out.extend(response.map(|gram| mix(gram, 6)));
            }
        }
        Fields::Instruction => out.extend(instruction),
        Fields::Response => out.extend(response),
    }
}

#[cfg(test)]
mod tests {
    use super::super::sketch::Maker;
    use super::*;

    #[test]
    fn all_levels_give_the_same_keys() {
        let settings = Settings::default();
        let mut bytes = Vec::new();
        let text: String = (0..500).map(|word| format!("w{} ", word % 333)).collect();
        Maker::default().push(&text, &text, &settings, &mut bytes);
        let sketch = Sketch::read(&bytes).unwrap();
        let all: Vec<Vec<u64>> = Level::available()
            .into_iter()
            .map(|level| {
                let mut keys = Vec::new();
                Signer::at(&settings, level).keys(&sketch, None, &mut keys);
                keys
            })
            .collect();
        assert_eq!(all[0].len(), 33);
        assert!(all.iter().all(|keys| *keys == all[0]));
        let mut other = Vec::new();
        Signer::new(&settings).keys(&sketch, Some("direct"), &mut other);
        assert!(other.iter().all(|key| !all[0].contains(key)));
    }

    /// Sets of random grams, half with few members, where poor permutations would show.
    #[test]
    fn bands_meet_as_often_as_the_formula_says() {
        const PAIRS: u64 = 4000;
        for (bands, rows) in [(32, 4), (20, 5)] {
            let settings = Settings { bands, rows, ..Settings::default() };
            let mut signer = Signer::new(&settings);
            for (common, own) in [(90, 105), (100, 50), (150, 38), (9, 6), (30, 5)] {
                let mut met = 0;
                for pair in 0..PAIRS {
                    let mut grams = |side: u64| {
                        let of =
                            |kind: u64, count: u64| (0..count).map(move |n| mix(pair << 32 | n, mix(kind, common)));
                        let mut keys = Vec::new();
                        signer.bands_of(Kind::Pair, of(7, common).chain(of(8 + side, own)), &mut keys);
                        keys
                    };
                    let (a, b) = (grams(0), grams(1));
                    met += u32::from(a.iter().zip(&b).any(|(x, y)| x == y));
                }
                let share = common as f64 / (common + 2 * own) as f64;
                let expected = 1.0 - (1.0 - share.powi(rows as i32)).powi(bands as i32);
                let deviation = (expected * (1.0 - expected) / PAIRS as f64).sqrt();
                let found = f64::from(met) / PAIRS as f64;
                assert!(
                    (found - expected).abs() <= 4.0 * deviation + 0.001,
                    "{bands}x{rows} {share}: {found}, {expected}"
                );
            }
        }
    }
}
