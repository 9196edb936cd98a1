//! Ids are those of the reference, for every document, with a cold and a warm cache, with all and with few bytes known.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use pairmill_core::bytes::alphabet;
use pairmill_core::encoder::{Cache, Encoder};
use pairmill_core::nfc::normalize;
use pairmill_fuzz::{Reference, corpus, learned, reference, texts};

struct Side {
    reference: Reference,
    encoder: Encoder,
    known: [bool; 256],
}

impl Side {
    fn new(corpus: &[String], vocab_size: usize, full_alphabet: bool) -> Self {
        let reference = reference(corpus, vocab_size, 2, &[], full_alphabet);
        let (vocab, merges) = learned(&reference);
        let known = alphabet().map(|symbol| vocab.contains_key(symbol.encode_utf8(&mut [0; 4])));
        Self { reference, encoder: Encoder::new(vocab.into_iter().collect(), &merges).unwrap(), known }
    }
}

static SIDES: LazyLock<[Side; 3]> = LazyLock::new(|| {
    let corpus = corpus();
    let ascii: Vec<String> = corpus.iter().filter(|text| text.is_ascii()).cloned().collect();
    let sides = [Side::new(&corpus, 2_000, true), Side::new(&corpus, 600, false), Side::new(&ascii, 300, false)];
    assert!(sides[0].known.iter().all(|&known| known) && sides[2].known[0x80..].iter().all(|&known| !known));
    sides
});

fuzz_target!(|data: &[u8]| {
    let documents = texts(data);
    for (number, side) in SIDES.iter().enumerate() {
        let mut cache = Cache::default();
        for pass in ["cold", "warm"] {
            for document in &documents {
                let mut ids = Vec::new();
                let dropped = side.encoder.encode(document, &mut cache, &mut ids);
                let expected = side.reference.encode_fast(document.as_str(), false).unwrap();
                assert_eq!(ids, expected.get_ids(), "vocabulary {number}, {pass}: {document:?}");
                let unknown = normalize(document).bytes().filter(|&byte| !side.known[usize::from(byte)]).count();
                assert_eq!(dropped, unknown as u64, "dropped bytes, vocabulary {number}, {pass}: {document:?}");
            }
        }
    }
});
