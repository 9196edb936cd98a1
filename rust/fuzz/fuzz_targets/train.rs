//! Vocabulary and merges are those of the reference, of every small corpus with every option.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pairmill_core::bpe::count::WordCounter;
use pairmill_core::bpe::train::Options;
use pairmill_fuzz::{Learned, learned, texts, train, trained};

/// Special tokens that merges can meet as well, in byte symbols; one is here twice.
const SPECIAL: [&str; 8] = ["<|PAD|>", "ab", "Ġa", "b", "<think>", "aa", "ab", "'s"];

fuzz_target!(|data: &[u8]| {
    let [size, frequency, special, alphabet, rest @ ..] = data else { return };
    let documents = texts(rest);
    let chosen = SPECIAL.iter().enumerate().filter(|(bit, _)| special >> bit & 1 == 1);
    let special_tokens: Vec<String> = chosen.map(|(_, token)| (*token).to_owned()).collect();
    let options = Options {
        vocab_size: 2 * usize::from(*size),
        special_tokens: &special_tokens,
        min_frequency: u64::from(frequency % 4),
        full_alphabet: alphabet % 2 == 1,
    };

    let mut counter = WordCounter::default();
    documents.iter().for_each(|document| counter.add(document).unwrap());
    let words = counter.words();
    let ours = train(words.iter().zip(words.counts.iter().copied()), options).unwrap();
    let token = |id: u32| ours.vocab[id as usize].clone();
    let got: Learned = (
        ours.vocab.iter().cloned().zip(0..).collect(),
        ours.merges.iter().map(|&(left, right)| (token(left), token(right))).collect(),
    );

    assert_eq!(got, learned(&trained(&documents, options)), "{options:?}: {documents:?}");
});
