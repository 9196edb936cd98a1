//! Ids are those of the reference: of every document, at every level, with a cold and a warm cache; with all bytes known
//! and with few, with each split, with added tokens.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use pairmill_core::bpe::added::AddedToken;
use pairmill_core::bpe::alphabet::alphabet;
use pairmill_core::bpe::encoder::{Cache, Encoder, Options as Settings};
use pairmill_core::bpe::nfc::normalize;
use pairmill_core::bpe::split::Pattern;
use pairmill_core::bpe::train::Options;
use pairmill_core::simd::Level;
use pairmill_fuzz::{Reference, add, corpus, learned, pairs, reference, texts, trained};

struct Side {
    reference: Reference,
    encoders: Vec<(&'static str, Encoder)>,
    known: [bool; 256],
    added: bool,
}

impl Side {
    fn new(mut reference: Reference, pattern: Pattern, added: &[AddedToken]) -> Self {
        let (vocab, merges) = learned(&reference);
        add(&mut reference, added);
        let known = alphabet().map(|symbol| vocab.contains_key(symbol.encode_utf8(&mut [0; 4])));
        let encoder = |level: Level| {
            let settings = Settings { pattern, added: added.to_vec(), ..Settings::default() };
            Encoder::with_options(vocab.clone().into_iter().collect(), &merges, &settings).unwrap().at_level(level)
        };
        let encoders = Level::available().into_iter().map(|level| (level.name(), encoder(level))).collect();
        Self { reference, encoders, known, added: !added.is_empty() }
    }
}

/// Added tokens of every kind: within each other and over each other's ends, in NFC and not, of white space, special.
fn added() -> Vec<AddedToken> {
    let of = |(content, flags): (&str, &str)| AddedToken {
        content: content.into(),
        single_word: false,
        lstrip: flags.contains('l'),
        rstrip: false,
        normalized: flags.contains('n'),
        special: flags.contains('s'),
    };
    let tokens =
        [("<think>", ""), ("<|im_start|>", "s"), ("the", "n"), ("  ", "n"), ("\n\n", ""), ("a", "l"), ("é", "n")];
    tokens.into_iter().chain([("e\u{323}", ""), ("'s", "s"), (" !", "l"), ("hi", "s"), ("th", "n")]).map(of).collect()
}

static SIDES: LazyLock<[Side; 7]> = LazyLock::new(|| {
    let corpus = corpus();
    let options =
        |vocab_size, full_alphabet| Options { vocab_size, special_tokens: &[], min_frequency: 2, full_alphabet };
    let qwen2 = |reference| Side::new(reference, Pattern::Qwen2, &[]);
    let all_pairs = |pattern| reference(pairs(|_| true), pattern);
    [
        qwen2(trained(&corpus, options(2_000, true))),
        qwen2(trained(&corpus[..corpus.len() / 2], options(600, false))),
        qwen2(all_pairs(Pattern::Qwen2)),
        qwen2(reference(pairs(|byte| byte < 0x7F && byte != b'q' && byte != b'\t'), Pattern::Qwen2)),
        Side::new(all_pairs(Pattern::Llama3), Pattern::Llama3, &[]),
        Side::new(all_pairs(Pattern::Gpt2), Pattern::Gpt2, &[]),
        Side::new(all_pairs(Pattern::Qwen2), Pattern::Qwen2, &added()),
    ]
});

fuzz_target!(|data: &[u8]| {
    // One at a time: the reference takes nearly all of the time.
    let [number, rest @ ..] = data else { return };
    let number = usize::from(*number) % SIDES.len();
    let side = &SIDES[number];
    let documents = texts(rest);
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
                // The text of an added token needs no symbols.
                if !side.added {
                    let unknown = normalize(document).bytes().filter(|&byte| !side.known[usize::from(byte)]).count();
                    assert_eq!(dropped, unknown as u64, "dropped bytes, {}", what());
                }
            }
        }
    }
});
