//! Keys of equal rows.

use xxhash_rust::xxh3::Xxh3;

use super::text::Light;

/// What two fields must have in common to be equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Every byte.
    Raw,
    /// The light form.
    Light,
}

/// Makes the keys of one row after another, in buffers that stay.
#[derive(Default)]
pub struct Keys {
    hasher: Xxh3,
    light: Light,
}

impl Keys {
    /// No row yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// XXH3 (128 bits, seed 0) over length (64 bits, little-endian) and bytes of each field.
    ///
    /// Without the lengths, the fields "ab" and "c" would have the key of "a" and "bc".
    pub fn key<'a>(&mut self, fields: impl IntoIterator<Item = &'a str>, form: Form) -> u128 {
        self.hasher.reset();
        for field in fields {
            let text = match form {
                Form::Raw => field,
                Form::Light => self.light.of(field),
            };
            self.hasher.update(&(text.len() as u64).to_le_bytes());
            self.hasher.update(text.as_bytes());
        }
        self.hasher.digest128()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xxhash_rust::xxh3::xxh3_128;

    #[test]
    fn a_key_is_the_hash_of_lengths_and_bytes() {
        let mut keys = Keys::new();
        let bytes = b"\x02\0\0\0\0\0\0\0ab\x01\0\0\0\0\0\0\0c";
        // The first one leaves nothing behind.
        for _ in 0..2 {
            assert_eq!(keys.key(["ab", "c"], Form::Raw), xxh3_128(bytes));
        }
        assert_ne!(keys.key(["ab", "c"], Form::Raw), keys.key(["a", "bc"], Form::Raw));
    }

    #[test]
    fn light_keys_are_keys_of_light_forms() {
        let mut keys = Keys::new();
        let plain = keys.key(["café au lait", ""], Form::Raw);
        for text in ["café au lait", " cafe\u{301}\tau \n lait", "ca\u{ad}fé au\u{3000}lait"] {
            assert_eq!(keys.key([text, " "], Form::Light), plain);
        }
        assert_ne!(keys.key(["Café au lait", ""], Form::Light), plain);
    }
}
