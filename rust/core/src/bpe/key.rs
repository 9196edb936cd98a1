//! Short pieces as numbers, which are compared and hashed in one step.

/// Pieces up to this length have a key that holds all their bytes.
pub(crate) const SHORT: usize = 15;

/// The bytes of a piece of 1 to [`SHORT`] bytes and, in the last byte, its length. No piece has [`Key::NONE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(u128);

/// The low bytes of a number, by how many.
const LOW_BYTES: [u128; SHORT + 1] = {
    let mut masks = [0; SHORT + 1];
    let mut length = 1;
    while length <= SHORT {
        masks[length] = masks[length - 1] << 8 | 0xFF;
        length += 1;
    }
    masks
};

impl Key {
    pub(crate) const NONE: Self = Self(0);

    /// The key of the first `length` of 16 bytes; `length` is 1 to [`SHORT`].
    #[inline]
    pub(crate) fn within(bytes: [u8; 16], length: usize) -> Self {
        Self(u128::from_le_bytes(bytes) & LOW_BYTES[length & SHORT] | u128::from((length as u64) << 56) << 64)
    }

    /// The key of a whole piece of 1 to [`SHORT`] bytes.
    pub(crate) fn of(piece: &[u8]) -> Self {
        let mut bytes = [0; 16];
        bytes[..piece.len()].copy_from_slice(piece);
        Self::within(bytes, piece.len())
    }

    /// The bytes of the piece.
    pub(crate) fn bytes(self) -> ([u8; 16], usize) {
        let bytes = self.0.to_le_bytes();
        (bytes, usize::from(bytes[SHORT]))
    }

    #[inline]
    pub(crate) fn hash(self) -> usize {
        let low = self.0 as u64 ^ 0x9E37_79B9_7F4A_7C15;
        let high = (self.0 >> 64) as u64 ^ 0xD6E8_FEB8_6659_FD93;
        let product = u128::from(low) * u128::from(high);
        (product as u64 ^ (product >> 64) as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_hold_all_bytes_and_the_length() {
        let text = b"abcdefghijklmnopqrstuvwxyz";
        for length in 1..=SHORT {
            let piece = &text[..length];
            let key = Key::of(piece);
            assert_eq!(key, Key::within(*text.first_chunk().unwrap(), length));
            assert_eq!((&key.bytes().0[..length], key.bytes().1), (piece, length));
            assert_ne!(key, Key::NONE);
        }
        assert_ne!(Key::of(b"\0"), Key::of(b"\0\0"));
    }
}
