//! The alphabet of byte-level BPE: one printable character for each byte (as GPT-2 defined it).

/// The characters of the bytes 0 to 255: 21–7E, A1–AC and AE–FF are themselves; the other 68 bytes, in increasing
/// order, are U+0100 and up.
pub fn alphabet() -> [char; 256] {
    let mut symbols = ['\0'; 256];
    let mut remapped = '\u{100}'..;
    for (byte, symbol) in (0..=u8::MAX).zip(&mut symbols) {
        *symbol = match byte {
            0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => char::from(byte),
            _ => remapped.next().unwrap_or_default(),
        };
    }
    symbols
}

#[cfg(test)]
mod tests {
    use super::alphabet;

    #[test]
    fn symbols_are_those_of_gpt2() {
        let symbols = alphabet();
        let shown: String =
            [0x00, 0x0A, 0x20, 0x41, 0x7F, 0xA0, 0xAD, 0xFF].iter().map(|&b: &usize| symbols[b]).collect();
        assert_eq!(shown, "ĀĊĠAġłŃÿ");
        let distinct: std::collections::HashSet<_> = symbols.iter().collect();
        assert_eq!(distinct.len(), 256);
    }
}
