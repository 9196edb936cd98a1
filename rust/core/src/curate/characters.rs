//! What curate asks of a character, by one version of Unicode for all questions.

use std::sync::LazyLock;

use caseless::Caseless;
use regex_syntax::hir::{Class as Ranges, HirKind};
use rustc_hash::FxHashMap;
use unicode_normalization::char::canonical_combining_class;
use unicode_normalization::{IsNormalized, is_nfc_quick};

use super::table::{SCALARS, Table};

/// The version of Unicode of every form in [`super::text`]. Another one may give other tokens and keys.
pub const UNICODE: &str = "16.0.0";

/// Two bits of a cell: what the character does to a text that is cut into tokens.
pub(super) const KIND: u8 = 3;
/// Separates.
pub(super) const OTHER: u8 = 0;
/// Part of a run.
pub(super) const WORD: u8 = 1;
/// A token of its own.
pub(super) const SINGLE: u8 = 2;
/// General category L.
pub(super) const LETTER: u8 = 1 << 2;
/// General category Nd.
pub(super) const DIGIT: u8 = 1 << 3;
/// Case folding changes it.
pub(super) const FOLDS: u8 = 1 << 4;
/// White space as `str.isspace` of Python has it.
pub(super) const SPACE: u8 = 1 << 5;
/// It may keep a text from being in NFC.
pub(super) const MARK: u8 = 1 << 6;
/// No form for comparison has it.
pub(super) const DELETED: u8 = 1 << 7;

/// Characters from here on have no case.
const CASELESS: u32 = 0x2_0000;

/// Scripts that are written without blanks between words.
const ONE_BY_ONE: &str = r"[\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}\p{sc=Thai}\p{sc=Lao}\p{sc=Khmer}\p{sc=Myanmar}]";

const SPACES: &str = r"[\t-\r\x1C-\x20\u{85}\u{A0}\u{1680}\u{2000}-\u{200A}\u{2028}\u{2029}\u{202F}\u{205F}\u{3000}]";

/// The cell and the case folding of each character.
pub(super) struct Characters {
    table: Table<u8>,
    folded: FxHashMap<char, [char; 3]>,
}

static TABLE: LazyLock<Characters> = LazyLock::new(Characters::build);

impl Characters {
    pub(super) fn get() -> &'static Self {
        &TABLE
    }

    #[inline]
    pub(super) fn of(&self, character: char) -> u8 {
        self.table.of(character)
    }

    /// The cell and the length of the character at a boundary; nothing at the end.
    #[inline(always)]
    pub(super) fn at(&self, text: &str, at: usize) -> Option<(u8, usize)> {
        let low = |byte: u8| usize::from(byte & 0x3F);
        Some(match *text.as_bytes().get(at..)? {
            [] => return None,
            [first, ..] if first < 0x80 => (self.table.ascii[usize::from(first)], 1),
            [first, last, ..] if first < 0xE0 => (self.table.cell(usize::from(first & 0x1F), last), 2),
            [first, second, last, ..] if first < 0xF0 => {
                (self.table.cell(usize::from(first & 0x0F) << 6 | low(second), last), 3)
            }
            [first, second, third, last, ..] => {
                (self.table.cell(usize::from(first & 7) << 12 | low(second) << 6 | low(third), last), 4)
            }
            _ => (OTHER, 1),
        })
    }

    /// The full case folding, filled up with U+0000 behind the first.
    #[inline]
    pub(super) fn folded(&self, character: char) -> [char; 3] {
        let same = [character, '\0', '\0'];
        if self.of(character) & FOLDS == 0 { same } else { self.folded.get(&character).copied().unwrap_or(same) }
    }

    fn build() -> Self {
        let mut flat = vec![OTHER; SCALARS];
        let classes = [
            (r"[\p{L}\p{M}\p{N}]", KIND, WORD),
            (r"[\p{S}%/*]", KIND, SINGLE),
            (ONE_BY_ONE, KIND, SINGLE),
            (r"\p{L}", LETTER, LETTER),
            (r"\p{Nd}", DIGIT, DIGIT),
            (SPACES, SPACE, SPACE),
            (r"[\u{AD}\u{200B}\u{FEFF}]", DELETED, DELETED),
        ];
        for (pattern, mask, bits) in classes {
            let Ok(HirKind::Class(Ranges::Unicode(ranges))) = regex_syntax::parse(pattern).map(|hir| hir.into_kind())
            else {
                unreachable!("{pattern} is a class of characters")
            };
            for range in ranges.iter() {
                for cell in &mut flat[range.start() as usize..=range.end() as usize] {
                    *cell = *cell & !mask | bits;
                }
            }
        }
        let mut folded = FxHashMap::default();
        for character in '\0'..=char::MAX {
            let cell = &mut flat[character as usize];
            if canonical_combining_class(character) != 0 || is_nfc_quick([character].into_iter()) != IsNormalized::Yes {
                *cell |= MARK;
            }
            if (character as u32) < CASELESS {
                let mut fold = [character].into_iter().default_case_fold();
                let all = std::array::from_fn(|_| fold.next().unwrap_or('\0'));
                if all[0] != character {
                    *cell |= FOLDS;
                    folded.insert(character, all);
                }
            }
        }

        Self { table: Table::of_flat(&flat), folded }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_in_a_text_has_its_cell() {
        let table = Characters::get();
        for character in '\0'..=char::MAX {
            let text = format!("é{character}a");
            assert_eq!(table.at(&text, 2), Some((table.of(character), character.len_utf8())));
            assert_eq!(table.at(&text[..2 + character.len_utf8()], 2), table.at(&text, 2));
        }
        assert_eq!((table.at("é", 2), table.at("", 0)), (None, None));
    }

    fn count(bits: impl Fn(u8) -> bool) -> usize {
        ('\0'..=char::MAX).filter(|&character| bits(Characters::get().of(character))).count()
    }

    #[test]
    fn all_data_are_of_one_version() {
        let (major, minor, patch) = unicode_normalization::UNICODE_VERSION;
        assert_eq!(UNICODE, format!("{major}.{minor}.{patch}"));
        let (major, minor, patch) = caseless::UNICODE_VERSION;
        assert_eq!(UNICODE, format!("{major}.{minor}.{patch}"));
        // Of regex-syntax, which tells its version nowhere: Unicode 16 has 141,028 letters and 760 decimal digits.
        assert_eq!(count(|cell| cell & LETTER != 0), 141_028);
        assert_eq!(count(|cell| cell & DIGIT != 0), 760);
    }

    #[test]
    fn as_many_characters_fold_as_the_standard_lists() {
        let table = Characters::get();
        assert_eq!(table.folded.len(), 1_557);
        assert_eq!(table.folded.values().filter(|fold| fold[1] != '\0').count(), 104);
        assert!(
            (CASELESS..=0x10_FFFF)
                .filter_map(char::from_u32)
                .all(|character| { [character].into_iter().default_case_fold().eq([character]) })
        );
    }

    #[test]
    fn white_space_is_that_of_python() {
        assert_eq!(count(|cell| cell & SPACE != 0), 29);
        assert_eq!(count(|cell| cell & DELETED != 0), 3);
    }
}
