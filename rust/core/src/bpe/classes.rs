//! The class of a character, by Unicode 16 as frozen in `tables`.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use crate::bpe::marks::MARKS;
use crate::bpe::tables::{LETTERS, NUMBERS, SPACES};

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
        for (ranges, class) in
            [(&LETTERS[..], Class::Letter), (&NUMBERS[..], Class::Number), (&SPACES[..], Class::Space)]
        {
            for &(first, last) in ranges {
                flat[first as usize..=last as usize].fill(class as u8);
            }
        }
        flat[usize::from(b'\r')] = Class::Newline as u8;
        flat[usize::from(b'\n')] = Class::Newline as u8;
        for &(first, last) in &MARKS {
            flat[first as usize..=last as usize].iter_mut().for_each(|cell| *cell |= MARK);
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
    use unicode_normalization_alignments::char::canonical_combining_class;
    use unicode_normalization_alignments::{IsNormalized, is_nfc_quick};

    use super::*;

    #[test]
    fn every_scalar_has_the_class_of_its_range() {
        let classes = Classes::get();
        let inside = |ranges: &[(u32, u32)], code: u32| ranges.iter().any(|&(a, b)| (a..=b).contains(&code));
        let mut seen = [0_usize; CLASSES];
        for character in '\0'..=char::MAX {
            let code = character as u32;
            let class = classes.of(character);
            seen[class as usize] += 1;
            if code < 128 {
                assert_eq!(classes.of_ascii(code as u8), class);
            }
            // The ranges are walked in full for a sample only: 1.1 million × 677 comparisons take a minute unoptimised.
            if code < 0x3100 || code.is_multiple_of(257) {
                let expected = match character {
                    '\r' | '\n' => Class::Newline,
                    _ if inside(&SPACES, code) => Class::Space,
                    _ if inside(&NUMBERS, code) => Class::Number,
                    _ if inside(&LETTERS, code) => Class::Letter,
                    _ => Class::Other,
                };
                assert_eq!(class, expected, "U+{code:04X}");
            }
        }
        // Counted through the wheel of tokenizers 0.22.2, over every scalar value.
        assert_eq!(seen[Class::Letter as usize], 141_028);
        assert_eq!(seen[Class::Number as usize], 1_911);
        assert_eq!(seen[Class::Space as usize] + seen[Class::Newline as usize], 25);
        assert_eq!(seen[Class::Newline as usize], 2);
    }

    #[test]
    fn every_mark_is_what_the_normaliser_looks_at() {
        let classes = Classes::get();
        for character in '\0'..=char::MAX {
            let passed =
                canonical_combining_class(character) == 0 && is_nfc_quick([character].into_iter()) == IsNormalized::Yes;
            assert_eq!(classes.look_up(character as u32).1, !passed, "U+{:04X}", character as u32);
        }
    }
}
