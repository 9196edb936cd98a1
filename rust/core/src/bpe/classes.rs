//! The class of a character, by Unicode 16 as in the reference.

use std::sync::LazyLock;

use regex_syntax::hir::{Class as Ranges, HirKind};
use rustc_hash::FxHashMap;
use unicode_normalization_alignments::char::canonical_combining_class;
use unicode_normalization_alignments::{IsNormalized, is_nfc_quick};

/// What the split can tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum Class {
    /// Neither letter, number nor white space; unassigned characters too.
    Other,
    Letter,
    Number,
    /// White space other than a line end.
    Space,
    /// Carriage return or line feed.
    Newline,
}

/// How many classes there are.
pub(crate) const CLASSES: usize = 5;

/// In a cell of the table, beside the class: the character may keep a text from being in NFC.
const MARK: u8 = 0x80;

/// As many characters as the last byte of a UTF-8 sequence tells apart.
const BLOCK: usize = 64;
const SCALARS: usize = 0x11_0000;

/// One lookup in two steps: 17,408 blocks of 64 characters, of which few differ.
pub(crate) struct Classes {
    ascii: [Class; 128],
    index: Vec<u16>,
    blocks: Vec<[u8; BLOCK]>,
}

static TABLE: LazyLock<Classes> = LazyLock::new(Classes::build);

impl Classes {
    pub(crate) fn get() -> &'static Self {
        &TABLE
    }

    #[inline]
    pub(crate) fn of_ascii(&self, byte: u8) -> Class {
        self.ascii[usize::from(byte & 0x7F)]
    }

    #[inline]
    pub(crate) fn of(&self, character: char) -> Class {
        self.look_up(character as u32).0
    }

    /// The class of a scalar value, and whether the value may keep a text from being in NFC.
    #[inline]
    pub(crate) fn look_up(&self, code: u32) -> (Class, bool) {
        let code = code as usize;
        let cell = self.blocks[usize::from(self.index[code / BLOCK])][code % BLOCK];
        let class = match cell & !MARK {
            0 => Class::Other,
            1 => Class::Letter,
            2 => Class::Number,
            3 => Class::Space,
            _ => Class::Newline,
        };
        (class, cell & MARK != 0)
    }

    fn build() -> Self {
        let mut flat = vec![Class::Other as u8; SCALARS];
        for (pattern, class) in [(r"\p{L}", Class::Letter), (r"\p{N}", Class::Number)] {
            let Ok(HirKind::Class(Ranges::Unicode(ranges))) = regex_syntax::parse(pattern).map(|hir| hir.into_kind())
            else {
                unreachable!("{pattern} is a class of characters")
            };
            for range in ranges.iter() {
                flat[range.start() as usize..=range.end() as usize].fill(class as u8);
            }
        }
        for character in '\0'..=char::MAX {
            let cell = &mut flat[character as usize];
            if character.is_whitespace() {
                *cell = if matches!(character, '\r' | '\n') { Class::Newline } else { Class::Space } as u8;
            }
            if canonical_combining_class(character) != 0 || is_nfc_quick([character].into_iter()) != IsNormalized::Yes {
                *cell |= MARK;
            }
        }

        let mut table =
            Self { ascii: [Class::Other; 128], index: Vec::with_capacity(SCALARS / BLOCK), blocks: Vec::new() };
        let mut places: FxHashMap<[u8; BLOCK], u16> = FxHashMap::default();
        for chunk in flat.as_chunks::<BLOCK>().0 {
            table.index.push(*places.entry(*chunk).or_insert_with(|| {
                table.blocks.push(*chunk);
                (table.blocks.len() - 1) as u16
            }));
        }
        for code in 0..128 {
            table.ascii[code as usize] = table.look_up(code).0;
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: u64 = 0x0441_7480_1BE2_AC13;

    #[test]
    fn every_scalar_has_the_class_that_the_reference_gives_it() {
        let classes = Classes::get();
        let mut seen = [0_usize; CLASSES];
        let mut digest = 0_u64;
        for code in 0..SCALARS as u32 {
            let class = classes.look_up(code).0;
            seen[class as usize] += 1;
            digest = digest.wrapping_mul(31).wrapping_add(class as u64);
            if code < 128 {
                assert_eq!(classes.of_ascii(code as u8), class);
            }
        }
        // Counted through the wheel of tokenizers 0.22.2, over every scalar value.
        assert_eq!(seen[Class::Letter as usize], 141_028);
        assert_eq!(seen[Class::Number as usize], 1_911);
        assert_eq!(seen[Class::Space as usize] + seen[Class::Newline as usize], 25);
        assert_eq!(seen[Class::Newline as usize], 2);
        // tests/conformance/test_encoder.py computes the same number from the classes recorded there.
        assert_eq!(digest, DIGEST);
    }

    #[test]
    fn marks_are_as_many_as_unicode_9_has() {
        let marked = (0..SCALARS as u32).filter(|&code| Classes::get().look_up(code).1).count();
        assert_eq!(marked, 2_001);
    }
}
