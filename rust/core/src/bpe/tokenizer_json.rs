//! `tokenizer.json`, the file of the `tokenizers` library.

use std::borrow::Cow;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::bpe::added::AddedToken;
use crate::bpe::encoder::{Encoder, Options, VocabError};
use crate::bpe::split::Pattern;

/// Why a tokenizer.json makes no encoder.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It is not JSON of the form expected.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// Its vocabulary, merges and added tokens contradict each other.
    #[error(transparent)]
    Vocab(#[from] VocabError),
}

/// The JSON of a file without `model.vocab` and `model.merges`, which are nearly all of it.
///
/// # Errors
/// It is not a JSON object with an object `model`.
pub fn settings(json: &str) -> Result<String, FileError> {
    #[derive(Deserialize)]
    struct Model<'a>(#[serde(borrow)] BTreeMap<Cow<'a, str>, &'a RawValue>);

    let mut file: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(json)?;
    let Model(mut model) = serde_json::from_str(file.get("model").map_or("null", |model| model.get()))?;
    model.remove("vocab");
    model.remove("merges");
    let model = serde_json::value::to_raw_value(&model)?;
    file.insert("model".into(), &model);
    Ok(serde_json::to_string(&file)?)
}

/// The encoder of a file with a byte-level BPE model. The caller has checked its other settings.
///
/// # Errors
/// It lacks the parts, or they contradict themselves.
pub fn encoder(json: &str, pattern: Pattern, normalize: bool, ignore_merges: bool) -> Result<Encoder, FileError> {
    #[derive(Deserialize)]
    struct File<'a> {
        #[serde(default)]
        added_tokens: Vec<AddedToken>,
        #[serde(borrow)]
        model: Model<'a>,
    }
    #[derive(Deserialize)]
    struct Model<'a> {
        vocab: FxHashMap<String, u32>,
        #[serde(borrow)]
        merges: &'a RawValue,
    }
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

    impl AsRef<str> for Text<'_> {
        fn as_ref(&self) -> &str {
            &self.0
        }
    }

    let File { added_tokens, model } = serde_json::from_str(json)?;
    let options = Options { pattern, normalize, ignore_merges, added: added_tokens };
    let merges = model.merges.get();
    let made = if let Ok(pairs) = serde_json::from_str::<Vec<(Text<'_>, Text<'_>)>>(merges) {
        Encoder::with_options(model.vocab, &pairs, &options)
    } else {
        // As in merges.txt: two tokens a line, and a first line that names its version.
        let lines: Vec<Text<'_>> = serde_json::from_str(merges)?;
        let lines = lines.iter().map(AsRef::as_ref).filter(|line| !line.starts_with("#version"));
        let pairs: Vec<(&str, &str)> = lines.map(|line| line.split_once(' ').unwrap_or((line, ""))).collect();
        Encoder::with_options(model.vocab, &pairs, &options)
    };
    Ok(made?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpe::encoder::Cache;

    fn file(merges: &str) -> String {
        format!(
            r#"{{"version": "1.0", "added_tokens": [], "normalizer": {{"type": "NFC"}},
                "model": {{"type": "BPE", "vocab": {{"a": 0, "b": 1, "\u0120": 2, "ab": 3}}, "merges": {merges}}}}}"#
        )
    }

    #[test]
    fn merges_may_be_pairs_or_lines() {
        for merges in [r#"[["a", "b"]]"#, r#"["\u0023version: 0.2", "a b"]"#] {
            let made = encoder(&file(merges), Pattern::Gpt2, false, false).unwrap();
            let mut ids = Vec::new();
            made.encode("ab ba", &mut Cache::default(), &mut ids);
            assert_eq!(ids, [3, 2, 1, 0], "{merges}");
        }
    }

    #[test]
    fn settings_are_all_but_vocabulary_and_merges() {
        assert_eq!(
            settings(&file("[]")).unwrap(),
            r#"{"added_tokens":[],"model":{"type":"BPE"},"normalizer":{"type": "NFC"},"version":"1.0"}"#
        );
    }

    #[test]
    fn what_is_not_a_tokenizer_is_refused() {
        for json in ["", "[]", "{}", r#"{"model": 3}"#, r#"{"model": {"vocab": {"a": -1}, "merges": []}}"#] {
            assert!(encoder(json, Pattern::Qwen2, true, false).is_err(), "{json}");
        }
        assert!(settings("{}").is_err() && settings(r#"{"model": 3}"#).is_err());
        let error = encoder(&file(r#"["a"]"#), Pattern::Qwen2, true, false).err().map(|error| error.to_string());
        assert!(error.unwrap().contains("merges[0] needs the token"));
    }
}
