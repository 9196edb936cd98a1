//! Ids are those of the reference: of every document, at every level, with a cold and a warm cache, with all bytes
//! known and with few.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use pairmill_core::bytes::alphabet;
use pairmill_core::encoder::{Cache, Encoder};
use pairmill_core::nfc::normalize;
use pairmill_core::simd::Level;
use pairmill_core::train::Options;
use pairmill_fuzz::{Reference, corpus, learned, pairs, reference, texts, trained};

struct Side {
    reference: Reference,
    encoders: Vec<(&'static str, Encoder)>,
    known: [bool; 256],
}

impl Side {
    fn new(reference: Reference) -> Self {
        let (vocab, merges) = learned(&reference);
        let known = alphabet().map(|symbol| vocab.contains_key(symbol.encode_utf8(&mut [0; 4])));
        let vocab: Vec<_> = vocab.into_iter().collect();
        let encoder = |level: Level| Encoder::new(vocab.clone(), &merges).unwrap().at_level(level);
        let encoders = Level::available().into_iter().map(|level| (level.name(), encoder(level))).collect();
        Self { reference, encoders, known }
    }
}

static SIDES: LazyLock<[Side; 4]> = LazyLock::new(|| {
    let corpus = corpus();
    let options =
        |vocab_size, full_alphabet| Options { vocab_size, special_tokens: &[], min_frequency: 2, full_alphabet };
    [
        Side::new(trained(&corpus, options(2_000, true))),
        Side::new(trained(&corpus[..corpus.len() / 2], options(600, false))),
        Side::new(reference(pairs(|_| true))),
        Side::new(reference(pairs(|byte| byte < 0x7F && byte != b'q' && byte != b'\t'))),
    ]
});

fuzz_target!(|data: &[u8]| {
    let documents = texts(data);
    for (number, side) in SIDES.iter().enumerate() {
        let encode = |document: &String| side.reference.encode_fast(document.as_str(), false).unwrap();
        let expected: Vec<_> = documents.iter().map(encode).collect();
        for (level, encoder) in &side.encoders {
            let mut cache = Cache::default();
            for pass in ["cold", "warm"] {
                for (document, expected) in documents.iter().zip(&expected) {
                    let mut ids = Vec::new();
                    let dropped = encoder.encode(document, &mut cache, &mut ids);
                    let what = || format!("{level}, vocabulary {number}, {pass}: {document:?}");
                    assert_eq!(ids, expected.get_ids(), "{}", what());
                    let unknown = normalize(document).bytes().filter(|&byte| !side.known[usize::from(byte)]).count();
                    assert_eq!(dropped, unknown as u64, "dropped bytes, {}", what());
                }
            }
        }
    }
});
