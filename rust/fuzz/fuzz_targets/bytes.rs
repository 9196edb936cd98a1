//! Nothing that takes bytes or strings from outside panics, whatever they are; and nothing of a text is lost.

#![no_main]

use std::iter::repeat;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use pairmill_core::bpe::alphabet::alphabet;
use pairmill_core::bpe::count::{WordCounter, truncate};
use pairmill_core::bpe::documents::data_io_document_sample;
use pairmill_core::bpe::encoder::{Cache, Encoder};
use pairmill_core::bpe::nfc::normalize;
use pairmill_core::bpe::split::{Pattern, pieces};
use pairmill_core::bpe::train::Options;
use pairmill_core::jsonl;
use pairmill_core::simd::Level;
use pairmill_fuzz::{SEPARATOR, learned, pairs, reference, texts, train};

/// For each level an encoder that knows all bytes, and its tokens by id.
static ENCODERS: LazyLock<Vec<(Encoder, Vec<String>)>> = LazyLock::new(|| {
    let (vocab, merges) = learned(&reference(pairs(|_| true), Pattern::Qwen2));
    let mut vocab: Vec<_> = vocab.into_iter().collect();
    vocab.sort_by_key(|&(_, id)| id);
    let encoder = |level| Encoder::new(vocab.clone(), &merges).unwrap().at_level(level);
    let tokens: Vec<String> = vocab.iter().map(|(token, _)| token.clone()).collect();
    Level::available().into_iter().map(|level| (encoder(level), tokens.clone())).collect()
});

fuzz_target!(|data: &[u8]| {
    let strings = texts(data);
    let number = u64::from_le_bytes(*data.first_chunk().unwrap_or(&[0; 8]));
    words(data, number, &strings);
    lossless(&strings);
    for text in &strings {
        assert_eq!(truncate(text, data.len() / 2).chars().count(), text.chars().count().min(data.len() / 2));
    }
    // An encoder takes longer to make than all the rest.
    if number % 8 == 0 {
        vocabulary(number / 8, &strings);
    }
    json(data);
    // Of arbitrary bytes hardly any is a row; of texts between quotes many are.
    let quoted = strings.join("\",\"");
    json(format!("[\"{quoted}\"] {{\"condition\":\"{quoted}\"}}").as_bytes());
    let documents = (number % 1_000) as usize;
    let sample = data_io_document_sample(number, &strings[0], documents, data.len()).unwrap();
    assert_eq!(sample.len(), documents.min(data.len()));
});

/// Words of any bytes with any counts can be counted or are refused, and what was counted trained on.
fn words(data: &[u8], number: u64, special_tokens: &[String]) {
    let mut counter = WordCounter::default();
    for (word, shift) in data.split(|&byte| byte == SEPARATOR).zip((0..64).cycle()) {
        let count = number.rotate_left(shift) as i64;
        assert!(counter.add_word(word, count).is_err() || count > 0);
    }
    let options = Options { vocab_size: 300, special_tokens, min_frequency: number % 3, full_alphabet: true };
    // Counts of any size may sum to too much; of one they never do.
    let words = counter.words();
    let _ = train(words.iter().zip(words.counts.iter().copied()), options);
    assert!(train(words.iter().zip(repeat(1)), options).unwrap().vocab.len() >= 256);
}

/// The pieces of a text are the text, and its ids are those of its bytes.
fn lossless(texts: &[String]) {
    let symbols = alphabet();
    for (encoder, tokens) in ENCODERS.iter() {
        let mut cache = Cache::default();
        for text in texts {
            let text = normalize(text);
            for pattern in [Pattern::Qwen2, Pattern::Llama3, Pattern::Gpt2] {
                assert_eq!(pieces(&text, pattern).collect::<String>(), text);
            }
            let mut ids = Vec::new();
            assert_eq!(encoder.encode(&text, &mut cache, &mut ids), 0);
            let got: String = ids.iter().map(|&id| &tokens[id as usize][..]).collect();
            assert_eq!(got, text.bytes().map(|byte| symbols[usize::from(byte)]).collect::<String>());
        }
    }
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

/// Rows that are read in two parts, wherever the cut is, are those read at once.
fn json(data: &[u8]) {
    let read = |data: &[u8], last: bool| {
        let mut rows = Vec::new();
        let parsed = jsonl::rows(data, last, |a, b, c| rows.push([a, b, c].map(str::to_owned)));
        assert!(parsed.bytes <= data.len());
        (rows, parsed)
    };
    let (whole, parsed) = read(data, true);
    let cut = data.len() / 2;
    let (mut rows, first) = read(&data[..cut], false);
    if first.refused {
        assert!(parsed.refused && parsed.bytes == first.bytes, "cut at {cut}");
    } else {
        let (rest, second) = read(&data[first.bytes..], true);
        rows.extend(rest);
        assert_eq!(second.refused, parsed.refused, "cut at {cut}");
    }
    assert_eq!(rows, whole, "cut at {cut}");
}
