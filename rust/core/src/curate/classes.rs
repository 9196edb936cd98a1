//! What the metrics ask of a character, by Unicode 16.

use std::sync::LazyLock;

use regex_syntax::hir::{Class as Ranges, HirKind};

use super::table::{SCALARS, Table};

/// White space by Python's `str.isspace`.
pub(crate) const SPACE: u8 = 1;
/// Of category P, S or C, and not white space.
pub(crate) const SYMBOL: u8 = 2;
/// Of category Nd.
pub(crate) const DIGIT: u8 = 4;
/// Of category L.
pub(crate) const LETTER: u8 = 8;
/// Its lower case is something else.
pub(crate) const UPPER: u8 = 16;
/// Of category M.
pub(crate) const MARK: u8 = 32;

const SPACES: [(u32, u32); 10] = [
    (0x09, 0x0D),
    (0x1C, 0x20),
    (0x85, 0x85),
    (0xA0, 0xA0),
    (0x1680, 0x1680),
    (0x2000, 0x200A),
    (0x2028, 0x2029),
    (0x202F, 0x202F),
    (0x205F, 0x205F),
    (0x3000, 0x3000),
];

/// The flags of every character.
pub(crate) struct Classes(Table<u8>);

static TABLE: LazyLock<Classes> = LazyLock::new(Classes::build);

impl Classes {
    pub(crate) fn get() -> &'static Self {
        &TABLE
    }

    #[inline]
    pub(crate) fn of(&self, character: char) -> u8 {
        self.0.of(character)
    }

    fn build() -> Self {
        let mut flat = vec![0_u8; SCALARS];
        let mut assigned = vec![true; SCALARS];
        let kinds =
            [(r"\p{P}", SYMBOL), (r"\p{S}", SYMBOL), (r"\p{C}", SYMBOL), (r"\p{Nd}", DIGIT), (r"\p{L}", LETTER)];
        for (pattern, flag) in kinds.into_iter().chain([(r"\p{M}", MARK), (r"\p{Cn}", 0)]) {
            let Ok(HirKind::Class(Ranges::Unicode(ranges))) = regex_syntax::parse(pattern).map(|hir| hir.into_kind())
            else {
                unreachable!("{pattern} is a class of characters")
            };
            for code in ranges.iter().flat_map(|range| range.start() as usize..=range.end() as usize) {
                flat[code] |= flag;
                assigned[code] &= flag != 0;
            }
        }
        for code in SPACES.into_iter().flat_map(|(first, last)| first as usize..=last as usize) {
            flat[code] = SPACE;
        }
        for character in '\0'..=char::MAX {
            let code = character as usize;
            // The standard library's tables follow the compiler; what its Unicode assigns later has no lower case here.
            if assigned[code] && !character.to_lowercase().eq([character]) {
                flat[code] |= UPPER;
            }
        }

        Self(Table::of_flat(&flat))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_have_the_classes_of_python() {
        let classes = Classes::get();
        for (character, flags) in [
            ('a', LETTER),
            ('A', LETTER | UPPER),
            ('7', DIGIT),
            ('٣', DIGIT),
            ('½', 0),
            ('\u{1C}', SPACE),
            ('\u{A0}', SPACE),
            ('\u{200B}', SYMBOL),
            ('\u{301}', MARK),
            ('中', LETTER),
            ('…', SYMBOL),
            ('Ⓐ', SYMBOL | UPPER),
            ('\u{10FFFF}', SYMBOL),
        ] {
            assert_eq!(classes.of(character), flags, "{character:?}");
        }
        assert_eq!(('\0'..=char::MAX).filter(|&character| classes.of(character) & SPACE != 0).count(), 29);
    }
}
