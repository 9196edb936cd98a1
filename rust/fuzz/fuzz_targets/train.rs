//! Vocabulary and merges are those of the reference, for every small corpus and every option.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pairmill_core::count::WordCounter;
use pairmill_core::train::{Options, TrainError, train};
use pairmill_fuzz::{Learned, learned, reference, texts};

/// Special tokens that merges can meet as well, in byte symbols; one is here twice.
const SPECIAL: [&str; 8] = ["<|PAD|>", "ab", "Ġa", "b", "<think>", "aa", "ab", "'s"];

fuzz_target!(|data: &[u8]| {
    let [size, frequency, special, alphabet, rest @ ..] = data else { return };
    let documents = texts(rest);
    let chosen = SPECIAL.iter().enumerate().filter(|(bit, _)| special >> bit & 1 == 1);
    let special_tokens: Vec<String> = chosen.map(|(_, token)| (*token).to_owned()).collect();
    let vocab_size = 2 * usize::from(*size);
    let min_frequency = u64::from(frequency % 4);
    let full_alphabet = alphabet % 2 == 1;

    let mut counter = WordCounter::default();
    documents.iter().for_each(|document| counter.add(document).unwrap());
    let options = Options { vocab_size, special_tokens: &special_tokens, min_frequency, full_alphabet };
    let trained = train::<TrainError>(counter.words().into_iter(), options, &mut || Ok(())).unwrap();
    let token = |id: u32| trained.vocab[id as usize].clone();
    let got: Learned = (
        trained.vocab.iter().cloned().zip(0..).collect(),
        trained.merges.iter().map(|&(left, right)| (token(left), token(right))).collect(),
    );

    let expected = learned(&reference(&documents, vocab_size, min_frequency, &special_tokens, full_alphabet));
    assert_eq!(got, expected, "{options:?}: {documents:?}");
});
