//! The documents that data_io's `train_tokenizer` keeps of a file with too many.
//!
//! Bit for bit: a SipHash-1-3 of the seed and the file's name seeds a PCG64, whose numbers drive the partial shuffle of
//! `rand` 0.10. The shuffle puts its sample at the end and data_io keeps the front, so mostly the head of the file is
//! kept. That is a defect of data_io, reproduced here to get its tokenizer.

use std::hash::Hasher;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;
use siphasher::sip::SipHasher13;

/// More documents than 32-bit draws can shuffle.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("got {0} documents to sample from; expected fewer than {most}", most = u32::MAX)]
pub struct TooManyDocuments(
    /// The documents of the file.
    pub usize,
);

/// The indices of the documents kept, in order, of `n` documents of the file `name`; all of them if `n <= limit`.
///
/// # Errors
/// More than 2^32 − 2 documents.
pub fn data_io_document_sample(seed: u64, name: &str, n: usize, limit: usize) -> Result<Vec<u64>, TooManyDocuments> {
    if n <= limit {
        return Ok((0..n as u64).collect());
    }
    let count = u32::try_from(n).ok().filter(|&count| count < u32::MAX).ok_or(TooManyDocuments(n))?;
    let mut documents: Vec<u32> = (0..count).collect();
    let _ = documents.partial_shuffle(&mut Pcg64::seed_from_u64(hash(seed, name)), limit);
    Ok(documents[..limit].iter().map(|&document| u64::from(document)).collect())
}

/// As Rust's standard hasher, whose algorithm is not promised, hashes (`u64`, `&str`).
fn hash(seed: u64, name: &str) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(&seed.to_le_bytes());
    hasher.write(name.as_bytes());
    hasher.write(&[0xFF]);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::hash::{DefaultHasher, Hash};

    use super::*;

    #[test]
    fn seeds_are_those_of_the_standard_hasher_and_samples_those_of_rand() {
        for seed in [0, 1, 42, u64::MAX] {
            for name in ["", "part-0.parquet", "math__é__0.jsonl"] {
                let mut hasher = DefaultHasher::new();
                seed.hash(&mut hasher);
                name.hash(&mut hasher);
                assert_eq!(hash(seed, name), hasher.finish());
                for (n, limit) in [(0, 0), (3, 0), (3, 2), (3, 4), (100, 33), (70_000, 69_999)] {
                    let mut expected: Vec<u64> = (0..n as u64).collect();
                    if n > limit {
                        let _ = expected.partial_shuffle(&mut Pcg64::seed_from_u64(hasher.finish()), limit);
                        expected.truncate(limit);
                    }
                    assert_eq!(data_io_document_sample(seed, name, n, limit), Ok(expected));
                }
            }
        }
        // Recorded from a shuffle written after the papers of PCG and SipHash.
        assert_eq!(data_io_document_sample(0, "part-0.parquet", 10, 4), Ok(vec![8, 1, 7, 3]));
    }

    #[test]
    fn too_many_documents_are_refused() {
        assert_eq!(data_io_document_sample(0, "", u32::MAX as usize, 1), Err(TooManyDocuments(u32::MAX as usize)));
    }
}
