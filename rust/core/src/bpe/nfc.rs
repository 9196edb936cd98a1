//! Canonical composition with the Unicode 9 data of the reference.

use std::borrow::Cow;

use unicode_normalization_alignments::{IsNormalized, UnicodeNormalization, is_nfc_quick};

/// `text` in NFC; borrowed when it is so already, which nearly every text is.
pub fn normalize(text: &str) -> Cow<'_, str> {
    if text.is_ascii() || is_nfc_quick(text.chars()) == IsNormalized::Yes {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(text.nfc().map(|(character, _)| character).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_full(text: &str) -> String {
        text.nfc().map(|(character, _)| character).collect()
    }

    #[test]
    fn the_gate_never_skips_a_text_that_changes() {
        let mut changed = 0;
        for character in '\0'..=char::MAX {
            // A starter before and a mark of a low and a high class after: composition and reordering both get a chance.
            let text: String = ['e', character, '\u{323}', '\u{301}', character].iter().collect();
            for text in [&text[..], &text[1..1 + character.len_utf8()]] {
                let expected = in_full(text);
                changed += usize::from(expected != text);
                assert_eq!(normalize(text), expected, "U+{:04X}", character as u32);
            }
        }
        assert!(changed > 3_000, "the test looked at {changed} texts that change");
    }

    #[test]
    fn the_data_is_of_unicode_9() {
        assert_eq!(unicode_normalization_alignments::UNICODE_VERSION, (9, 0, 0));
        // Composed since Unicode 13.
        assert_eq!(normalize("\u{11935}\u{11930}"), "\u{11935}\u{11930}");
        assert_eq!(normalize("e\u{301}"), "é");
    }
}
