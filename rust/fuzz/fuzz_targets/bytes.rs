//! Nothing that takes bytes or strings from outside panics, whatever they are; and nothing of a text is lost.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pairmill_core::bytes::alphabet;
use pairmill_core::count::{WordCounter, truncate};
use pairmill_core::encoder::{Cache, Encoder};
use pairmill_core::nfc::normalize;
use pairmill_core::sample::data_io_document_sample;
use pairmill_core::split::pieces;
use pairmill_core::train::{Options, TrainError, Trained, train};
use pairmill_fuzz::{SEPARATOR, texts};

fuzz_target!(|data: &[u8]| {
    let strings = texts(data);
    let number = u64::from_le_bytes(*data.first_chunk().unwrap_or(&[0; 8]));
    let trained = words(data, number, &strings);
    for text in &strings {
        lossless(text, &trained);
        assert_eq!(truncate(text, data.len() / 2).chars().count(), text.chars().count().min(data.len() / 2));
    }
    vocabulary(number, &strings);
    let documents = (number % 1_000) as usize;
    let sample = data_io_document_sample(number, &strings[0], documents, data.len()).unwrap();
    assert_eq!(sample.len(), documents.min(data.len()));
});

/// Words of any bytes with any counts; the words that are accepted train a vocabulary with all bytes.
fn words(data: &[u8], number: u64, special_tokens: &[String]) -> Trained {
    let mut counter = WordCounter::default();
    for (word, shift) in data.split(|&byte| byte == SEPARATOR).zip((0..64).cycle()) {
        let count = number.rotate_left(shift) as i64;
        assert!(counter.add_word(word, count).is_err() || count > 0);
    }
    let options = Options { vocab_size: 300, special_tokens, min_frequency: number % 3, full_alphabet: true };
    // Counts of any size sum to too much; of one they never do.
    let counted = train::<TrainError>(counter.words().into_iter(), options, &mut || Ok(()));
    let once = counter.words().into_iter().map(|(word, _)| (word, 1));
    let trained = train::<TrainError>(once, options, &mut || Ok(())).unwrap();
    counted.unwrap_or(trained)
}

/// The pieces of a text are the text, and its ids stand for its bytes.
fn lossless(text: &str, trained: &Trained) {
    let text = normalize(text);
    assert_eq!(pieces(&text).collect::<String>(), text);
    let token = |id: &u32| trained.vocab[*id as usize].clone();
    let merges: Vec<_> = trained.merges.iter().map(|(left, right)| (token(left), token(right))).collect();
    let encoder = Encoder::new(trained.vocab.iter().cloned().zip(0..).collect(), &merges).unwrap();
    let mut ids = Vec::new();
    assert_eq!(encoder.encode(&text, &mut Cache::default(), &mut ids), 0);
    let symbols = alphabet();
    let expected: String = text.bytes().map(|byte| symbols[usize::from(byte)]).collect();
    assert_eq!(ids.iter().map(token).collect::<String>(), expected);
}

/// A vocabulary with any tokens, ids and merges is refused or serves.
fn vocabulary(number: u64, strings: &[String]) {
    let mut tokens: Vec<(String, u32)> = strings.iter().cloned().zip(0..).collect();
    if let Some((_, id)) = tokens.last_mut() {
        *id = number as u32;
    }
    let pairs = strings.windows(2).map(|pair| (pair[0].clone(), pair[1].clone()));
    let merges: Vec<_> = pairs.take(number as usize % 4).collect();
    if let Ok(encoder) = Encoder::new(tokens, &merges) {
        let mut cache = Cache::default();
        for text in strings.iter().chain(strings) {
            let mut ids = Vec::new();
            let dropped = encoder.encode(text, &mut cache, &mut ids);
            assert!(ids.len() as u64 + dropped <= normalize(text).len() as u64);
        }
    }
}
