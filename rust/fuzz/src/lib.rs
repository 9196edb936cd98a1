//! What the fuzz targets share: texts made of the fuzzer's bytes, and the reference.

use std::collections::HashMap;

use pairmill_core::bpe::added::AddedToken as Added;
use pairmill_core::bpe::split::Pattern;
use pairmill_core::bpe::train::{Options, TrainError, Trained, Trainer};
use tokenizers::decoders::DecoderWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::normalizers::unicode::NFC;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::processors::PostProcessorWrapper;
use tokenizers::{AddedToken, SplitDelimiterBehavior, TokenizerImpl};

/// The reference in a configuration of pairmill-core.
pub type Reference = TokenizerImpl<BPE, NFC, Sequence, PostProcessorWrapper, DecoderWrapper>;

/// The expression that `pairmill_core` scans by hand.
fn expression(pattern: Pattern) -> String {
    let split = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    match pattern {
        Pattern::Qwen2 => split.into(),
        Pattern::Llama3 => split.replace(r"\p{N}|", r"\p{N}{1,3}|"),
        Pattern::Gpt2 => r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+".into(),
    }
}

/// Separates the documents, words or tokens in the fuzzer's bytes.
pub const SEPARATOR: u8 = 0x1E;

/// What the byte 0x80 + i means where it is not part of a character: contractions, all kinds of white space and line
/// ends, characters that compose, reorder or are newer than the reference's data, digits of all kinds, bytes that few
/// vocabularies have, words around the bounds of the cache, runs around the blocks of the scanner.
#[rustfmt::skip]
pub const PIECES: [&str; 128] = [
    "'s", "'S", "'t", "'re", "'RE", "'ve", "'m", "'ll", "'lL", "'d", "'ſ", "'ſo", "'x", "''", "'", "ſ",
    " ", "  ", "   ", "\n", "\r", "\r\n", "\n\n", " \n", "\n ", "\t", "\u{b}", "\u{c}", "\u{85}", "\u{a0}", "\u{1680}", "\u{2003}",
    "\u{2028}", "\u{2029}", "\u{202f}", "\u{205f}", "\u{3000}", "\u{180e}", "\u{200b}", "\u{feff}", "\u{1c}", "\u{1f}", "\0", "\u{4}", "\u{7f}", "a", "A", "the",
    " the", "é", "e\u{301}", "e\u{323}\u{301}", "e\u{301}\u{323}", "\u{301}", "\u{323}", "\u{344}", "\u{340}", "\u{1ac1}", "\u{898}", "\u{1df6}", "\u{c3c}", "\u{958}", "\u{212b}", "\u{212a}",
    "\u{1e9b}\u{323}", "\u{ac00}", "\u{ac00}\u{11a8}", "\u{1100}", "\u{1161}", "\u{11a8}", "\u{1100}\u{1161}\u{11a8}", "\u{a960}", "\u{d7b0}", "\u{11935}\u{11930}", "\u{11938}", "\u{1d15e}", "\u{fb01}", "日本", "。", "Привет",
    "שָׁ", "नमस्ते", "ไทย", "\u{1f600}", "\u{1f469}\u{200d}\u{1f467}", "\u{200d}", "0", "123", "٣", "²", "½", "Ⅷ", "\u{1d7d8}", "\u{378}", "\u{e000}", "\u{10ffff}",
    "\u{20000}", "\u{f900}", "<think>", "<|im_start|>", "{}", "\\frac", "!", " !", "!!!", ".\n", ",", "-", "_", "=", "abcdefghijklmno", "abcdefghijklmnop",
    " abcdefghijklmno", "abcdefghijklmnopqrstuvwxyzabcde", "abcdefghijklmnopqrstuvwxyzabcdef", "éééééééé", "ééééééé", "0123456789abcdef", "\u{800}", "\u{7ff}", "\u{ffff}", "\u{10000}", "\u{fffd}", "\u{a6}", "    \n    x", "                ", "---------------------------------------------------------------", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
];

/// A text: UTF-8 as it is, and [`PIECES`] for the other bytes, so that a change of one byte reaches them.
pub fn text(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|&byte| PIECES[usize::from(byte) - 0x80]));
    }
    text
}

/// The parts of `bytes` between separators, as texts.
pub fn texts(bytes: &[u8]) -> Vec<String> {
    bytes.split(|&byte| byte == SEPARATOR).map(text).collect()
}

/// A corpus in which each of [`PIECES`] is before and after others.
pub fn corpus() -> Vec<String> {
    let after = |piece: &str, step: usize| -> String {
        PIECES.iter().skip(step % 7).step_by(7).flat_map(|other| [piece, other]).collect()
    };
    PIECES.iter().zip(0..).flat_map(|(piece, step)| [after(piece, step), format!("{piece}{piece} {piece}")]).collect()
}

/// The reference with a model and a split of its own.
///
/// # Panics
/// When the reference does.
pub fn reference(model: BPE, pattern: Pattern) -> Reference {
    // Its threads would wait for each other longer than these texts take.
    tokenizers::utils::parallelism::set_parallelism(false);
    let regex = SplitPattern::Regex(expression(pattern));
    let split = Split::new(regex, SplitDelimiterBehavior::Isolated, false).unwrap();
    let mut tokenizer = Reference::new(model);
    tokenizer.with_normalizer(Some(NFC));
    tokenizer.with_pre_tokenizer(Some(Sequence::new(vec![
        PreTokenizerWrapper::Split(split),
        PreTokenizerWrapper::ByteLevel(ByteLevel::new(false, false, false)),
    ])));
    tokenizer
}

/// Have the reference find these tokens in texts, save the special ones.
///
/// # Panics
/// When the reference does.
pub fn add(reference: &mut Reference, tokens: &[Added]) {
    let made = |token: &Added| {
        AddedToken::from(token.content.clone(), token.special)
            .single_word(token.single_word)
            .lstrip(token.lstrip)
            .rstrip(token.rstrip)
            .normalized(token.normalized)
    };
    reference.add_tokens(&tokens.iter().map(made).collect::<Vec<_>>());
    reference.set_encode_special_tokens(true);
}

/// Train the reference.
///
/// # Panics
/// When the reference does.
pub fn trained(corpus: &[String], options: Options<'_>) -> Reference {
    let alphabet = if options.full_alphabet { ByteLevel::alphabet() } else { Default::default() };
    let mut tokenizer = reference(BPE::default(), Pattern::Qwen2);
    let mut trainer = BpeTrainer::builder()
        .vocab_size(options.vocab_size)
        .min_frequency(options.min_frequency)
        .special_tokens(options.special_tokens.iter().map(|token| AddedToken::from(token, true)).collect())
        .initial_alphabet(alphabet.into_iter().collect())
        .show_progress(false)
        .build();
    tokenizer.train(&mut trainer, corpus.iter()).unwrap();
    tokenizer
}

/// Train on words with their counts.
///
/// # Errors
/// Those of training.
pub fn train<'a>(
    mut words: impl Iterator<Item = (&'a [u8], i64)>,
    options: Options<'_>,
) -> Result<Trained, TrainError> {
    let mut trainer = Trainer::default();
    words.try_for_each(|(word, count)| trainer.add(word, count))?;
    trainer.train(options, &mut || Ok(()))
}

/// A model in which any two bytes of `known` merge, in an order without a pattern: where a piece ends shows in the ids,
/// whatever is there. Training never merges across pieces, so a piece that is too long changes none of its ids.
pub fn pairs(known: impl Fn(u8) -> bool) -> BPE {
    let symbols: Vec<String> = (0..=u8::MAX)
        .zip(pairmill_core::bpe::alphabet::alphabet())
        .filter(|&(byte, _)| known(byte))
        .map(|(_, symbol)| symbol.to_string())
        .collect();
    let mut merges: Vec<_> =
        symbols.iter().flat_map(|left| symbols.iter().map(|right| (left.clone(), right.clone()))).collect();
    let mut places: Vec<u32> = (0..merges.len() as u32).collect();
    places.sort_by_key(|place| place.wrapping_mul(0x9E37_79B9));
    merges = places.iter().map(|&place| merges[place as usize].clone()).collect();
    let tokens = symbols.iter().cloned().chain(merges.iter().map(|(left, right)| format!("{left}{right}")));
    BPE::new(tokens.zip(0..).collect(), merges)
}

/// Ids by token, and pairs of tokens by rank.
pub type Learned = (HashMap<String, u32>, Vec<(String, String)>);

/// What the reference has learned.
///
/// # Panics
/// Never; its merges are reachable through its file format alone.
pub fn learned(reference: &Reference) -> Learned {
    let model = serde_json::to_value(reference.get_model()).unwrap();
    (reference.get_model().get_vocab(), serde_json::from_value(model["merges"].clone()).unwrap())
}
