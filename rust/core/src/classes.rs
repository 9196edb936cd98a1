//! The class of a character, by Unicode 16 as frozen in `tables`.

use std::sync::LazyLock;

use crate::tables::{LETTERS, NUMBERS, SPACES};

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

const BLOCK: usize = 256;
const SCALARS: usize = 0x11_0000;

/// One lookup in two steps: 4,352 blocks of 256 characters, of which few differ.
pub(crate) struct Classes {
    ascii: [Class; 128],
    index: Vec<u16>,
    blocks: Vec<[Class; BLOCK]>,
}

static CLASSES: LazyLock<Classes> = LazyLock::new(Classes::build);

impl Classes {
    pub(crate) fn get() -> &'static Self {
        &CLASSES
    }

    #[inline]
    pub(crate) fn of_ascii(&self, byte: u8) -> Class {
        self.ascii[usize::from(byte & 0x7F)]
    }

    #[inline]
    pub(crate) fn of(&self, character: char) -> Class {
        let code = character as usize;
        self.blocks[usize::from(self.index[code / BLOCK])][code % BLOCK]
    }

    fn build() -> Self {
        let mut flat = vec![Class::Other; SCALARS];
        for (ranges, class) in
            [(&LETTERS[..], Class::Letter), (&NUMBERS[..], Class::Number), (&SPACES[..], Class::Space)]
        {
            for &(first, last) in ranges {
                flat[first as usize..=last as usize].fill(class);
            }
        }
        flat[usize::from(b'\r')] = Class::Newline;
        flat[usize::from(b'\n')] = Class::Newline;

        let mut ascii = [Class::Other; 128];
        ascii.copy_from_slice(&flat[..128]);
        let mut index = Vec::with_capacity(SCALARS / BLOCK);
        let mut blocks: Vec<[Class; BLOCK]> = Vec::new();
        for chunk in flat.chunks_exact(BLOCK) {
            let position = blocks.iter().position(|block| block[..] == *chunk).unwrap_or_else(|| {
                let mut block = [Class::Other; BLOCK];
                block.copy_from_slice(chunk);
                blocks.push(block);
                blocks.len() - 1
            });
            index.push(position as u16);
        }
        Self { ascii, index, blocks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scalar_has_the_class_of_its_range() {
        let classes = Classes::get();
        let inside = |ranges: &[(u32, u32)], code: u32| ranges.iter().any(|&(a, b)| (a..=b).contains(&code));
        let mut seen = [0_usize; 5];
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
}
