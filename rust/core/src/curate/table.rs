//! A value for each character: one lookup in two steps.

use std::hash::Hash;

use rustc_hash::FxHashMap;

/// As many characters as the last byte of a UTF-8 sequence tells apart.
pub(super) const BLOCK: usize = 64;
/// Code points.
pub(super) const SCALARS: usize = 0x11_0000;

/// 17,408 blocks of 64 characters, of which few differ.
pub(super) struct Table<T> {
    /// Of the characters below 128.
    pub(super) ascii: [T; 128],
    index: Vec<u16>,
    blocks: Vec<[T; BLOCK]>,
}

impl<T: Copy + Default + Eq + Hash> Table<T> {
    /// The table of the value of each code point.
    pub(super) fn of_flat(flat: &[T]) -> Self {
        let mut table =
            Self { ascii: [T::default(); 128], index: Vec::with_capacity(SCALARS / BLOCK), blocks: Vec::new() };
        let mut places: FxHashMap<[T; BLOCK], u16> = FxHashMap::default();
        for chunk in flat.as_chunks::<BLOCK>().0 {
            table.index.push(*places.entry(*chunk).or_insert_with(|| {
                table.blocks.push(*chunk);
                (table.blocks.len() - 1) as u16
            }));
        }
        table.ascii.copy_from_slice(&flat[..128]);
        table
    }

    /// The value of a character.
    #[inline]
    pub(super) fn of(&self, character: char) -> T {
        let code = character as usize;
        self.cell(code / BLOCK, code as u8)
    }

    /// The value of the character in a block whose sequence ends with a byte.
    #[inline(always)]
    pub(super) fn cell(&self, block: usize, last: u8) -> T {
        self.blocks[usize::from(self.index[block])][usize::from(last) % BLOCK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_character_has_its_own_value() {
        let flat: Vec<u32> = (0..SCALARS as u32).map(|code| code / 100 % 7 * 1000).collect();
        let table = Table::of_flat(&flat);
        assert!(('\0'..=char::MAX).all(|character| table.of(character) == flat[character as usize]));
        assert_eq!(table.ascii[..], flat[..128]);
        assert_eq!(table.index.len(), 17_408);
        assert!(table.blocks.len() < 200);
    }
}
