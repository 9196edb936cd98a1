//! `sample` against the crates whose numbers it reproduces.

use std::hash::{DefaultHasher, Hash, Hasher};

use pairmill_core::bpe::documents::{TooManyDocuments, data_io_document_sample};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;

/// What data_io does, in its own words.
fn reference(seed: u64, name: &str, n: usize, limit: usize) -> Vec<u64> {
    let mut documents: Vec<u64> = (0..n as u64).collect();
    if documents.len() > limit {
        let mut hasher = DefaultHasher::new();
        seed.hash(&mut hasher);
        name.hash(&mut hasher);
        let mut random = Pcg64::seed_from_u64(hasher.finish());
        let _ = documents.partial_shuffle(&mut random, limit);
        documents.truncate(limit);
    }
    documents
}

#[test]
fn samples_are_those_of_rand() {
    let mut moved = 0;
    for seed in [0, 1, 42, u64::MAX] {
        for name in ["", "part-0.parquet", "math__é__0.jsonl"] {
            for n in [0_usize, 1, 2, 3, 10, 100, 1_000, 70_000] {
                for limit in [0, 1, 2, n / 3, n / 2, n.saturating_sub(1), n, n + 1] {
                    let expected = reference(seed, name, n, limit);
                    moved += usize::from(expected.iter().zip(0..).any(|(&document, place)| document != place));
                    assert_eq!(data_io_document_sample(seed, name, n, limit).unwrap(), expected);
                }
            }
        }
    }
    assert!(moved > 100, "the test looked at {moved} samples that move anything");
}

#[test]
fn too_many_documents_are_refused() {
    assert_eq!(data_io_document_sample(0, "", u32::MAX as usize, 1), Err(TooManyDocuments(u32::MAX as usize)));
}
