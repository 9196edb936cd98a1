//! The documents that data_io's `train_tokenizer` keeps of a file with too many.
//!
//! Bit for bit: a SipHash-1-3 of the seed and the file's name seeds a PCG64, whose numbers drive the partial shuffle of
//! `rand` 0.10. The shuffle puts its sample at the end and data_io keeps the front, so what is kept leans to the head
//! of the file. That is a defect of data_io, reproduced here to get its tokenizer.

use std::fmt;
use std::hash::Hasher;

use siphasher::sip::SipHasher13;

/// More documents than 32-bit draws can shuffle; `rand` draws otherwise then.
#[derive(Debug, PartialEq, Eq)]
pub struct TooManyDocuments(
    /// The documents of the file.
    pub usize,
);

impl fmt::Display for TooManyDocuments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "got {} documents to sample from; expected fewer than {}", self.0, u32::MAX)
    }
}

impl std::error::Error for TooManyDocuments {}

/// The indices of the documents kept, in order, of `n` documents of the file `name`; all of them if `n <= limit`.
///
/// # Errors
/// More than 2^32 − 2 documents.
pub fn data_io_document_sample(seed: u64, name: &str, n: usize, limit: usize) -> Result<Vec<u64>, TooManyDocuments> {
    if n <= limit {
        return Ok((0..n as u64).collect());
    }
    let count = u32::try_from(n).ok().filter(|&count| count < u32::MAX).ok_or(TooManyDocuments(n))?;
    let mut places: Vec<u32> = (0..count).collect();
    let mut draws = Draws { random: Pcg64::seeded(hash(seed, name)), number: 0, open: 0 };
    for place in n - limit..n {
        places.swap(place, draws.up_to(place as u32) as usize);
    }
    Ok(places[..limit].iter().map(|&index| u64::from(index)).collect())
}

/// As Rust's standard hasher hashes (`u64`, `&str`).
fn hash(seed: u64, name: &str) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(&seed.to_le_bytes());
    hasher.write(name.as_bytes());
    hasher.write(&[0xFF]);
    hasher.finish()
}

/// PCG with 128 bits of state, XSL-RR output, stepped before each output.
struct Pcg64 {
    state: u128,
    increment: u128,
}

impl Pcg64 {
    /// The 64-bit seed is stretched to 32 bytes by a smaller PCG.
    fn seeded(mut seed: u64) -> Self {
        let mut halves = [0_u128; 2];
        for half in &mut halves {
            for shift in [0, 32, 64, 96] {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(11_634_580_027_462_260_723);
                let word = ((((seed >> 18) ^ seed) >> 27) as u32).rotate_right((seed >> 59) as u32);
                *half |= u128::from(word) << shift;
            }
        }
        let increment = halves[1] | 1;
        let mut generator = Self { state: halves[0].wrapping_add(increment), increment };
        generator.step();
        generator
    }

    fn step(&mut self) {
        self.state = self.state.wrapping_mul(0x2360_ED05_1FC6_5DA4_4385_DF64_9FCC_F645).wrapping_add(self.increment);
    }

    fn next(&mut self) -> u32 {
        self.step();
        let folded = (self.state >> 64) as u64 ^ self.state as u64;
        folded.rotate_right((self.state >> 122) as u32) as u32
    }

    /// A number below `bound`, by one multiplication and, where that leaves a bias, a second draw.
    fn below(&mut self, bound: u32) -> u32 {
        let product = u64::from(self.next()) * u64::from(bound);
        let (high, low) = ((product >> 32) as u32, product as u32);
        if low <= bound.wrapping_neg() {
            return high;
        }
        let carry = ((u64::from(self.next()) * u64::from(bound)) >> 32) as u32;
        high + u32::from(low.checked_add(carry).is_none())
    }
}

/// Numbers of rising bounds, several from one draw.
struct Draws {
    random: Pcg64,
    number: u32,
    open: u32,
}

impl Draws {
    /// A number of 0 to `last`; `last` rises by one from call to call and is never 0.
    fn up_to(&mut self, last: u32) -> u32 {
        let bound = last + 1;
        if self.open == 0 {
            let mut product = bound;
            self.open = 1;
            while let Some(longer) = product.checked_mul(bound + self.open) {
                product = longer;
                self.open += 1;
            }
            self.number = self.random.below(product);
        }
        self.open -= 1;
        if self.open == 0 {
            return self.number;
        }
        let drawn = self.number % bound;
        self.number /= bound;
        drawn
    }
}
