//! Personal data in texts: mail addresses, card numbers, phone numbers and IP addresses, in time linear in the text.
//!
//! Numbers of exercises must stay: what is part of a longer number or of a word is not taken, and a card's digits come in
//! groups of at least four, but for the last, so that dates and lists of small numbers are none.

/// What was found. An earlier kind wins where two overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A mail address whose domain ends with at least two letters.
    Email,
    /// 13 to 19 digits that pass the check of Luhn, not all equal, with single blanks or hyphens between groups.
    Card,
    /// A plus sign with 8 to 15 digits of a country code and number.
    Phone,
    /// An IPv4 address that is routed globally.
    Ip,
}

impl Kind {
    /// All kinds, in their order.
    pub const ALL: [Self; 4] = [Self::Email, Self::Card, Self::Phone, Self::Ip];

    /// Its name in reports and replacements.
    pub fn name(self) -> &'static str {
        match self {
            Self::Email => "EMAIL",
            Self::Card => "CARD",
            Self::Phone => "PHONE",
            Self::Ip => "IP",
        }
    }
}

/// A part of a text, from `start` to before `stop`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// In bytes, or in characters where a function says so.
    pub start: usize,
    /// In bytes, or in characters where a function says so.
    pub stop: usize,
    /// What it is.
    pub kind: Kind,
}

/// All personal data of a text from left to right, in bytes.
pub fn find(text: &str) -> Vec<Span> {
    let bytes = text.as_bytes();
    let mut spans = Vec::new();
    for kind in Kind::ALL {
        let found = match kind {
            Kind::Email => emails(bytes),
            Kind::Card => cards(bytes),
            Kind::Phone => phones(bytes),
            Kind::Ip => addresses(bytes),
        };
        add(&mut spans, found, kind);
    }
    spans
}

/// Spans in characters instead of bytes.
pub fn in_characters(text: &str, spans: &[Span]) -> Vec<Span> {
    let mut ends = spans.iter().flat_map(|span| [span.start, span.stop]).peekable();
    let mut places = Vec::with_capacity(2 * spans.len());
    let mut characters = 0;
    for (at, byte) in text.bytes().chain([0]).enumerate() {
        while ends.next_if_eq(&at).is_some() {
            places.push(characters);
        }
        if ends.peek().is_none() {
            break;
        }
        characters += usize::from(byte & 0xC0 != 0x80);
    }
    let ends = places.as_chunks::<2>().0.iter().zip(spans);
    ends.map(|(&[start, stop], span)| Span { start, stop, kind: span.kind }).collect()
}

/// Append the text with `<EMAIL>` and the like in place of what is found. Returns how many spans were replaced.
pub fn redact_into(text: &str, redacted: &mut String) -> usize {
    let mut copied = 0;
    let spans = find(text);
    for span in &spans {
        redacted.push_str(&text[copied..span.start]);
        redacted.extend(["<", span.kind.name(), ">"]);
        copied = span.stop;
    }
    redacted.push_str(&text[copied..]);
    spans.len()
}

/// Merge what was found into the spans of earlier kinds, unless it overlaps one.
fn add(spans: &mut Vec<Span>, found: Vec<(usize, usize)>, kind: Kind) {
    if found.is_empty() {
        return;
    }
    let mut merged = Vec::with_capacity(spans.len() + found.len());
    let mut earlier = spans.iter().copied().peekable();
    for (start, stop) in found {
        while let Some(span) = earlier.next_if(|span| span.stop <= start) {
            merged.push(span);
        }
        if earlier.peek().is_none_or(|span| span.start >= stop) {
            merged.push(Span { start, stop, kind });
        }
    }
    merged.extend(earlier);
    *spans = merged;
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn emails(bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    // Runs of these characters do not overlap, for none has the sign itself.
    let in_local = |byte: &u8| byte.is_ascii_alphanumeric() || b"._%+-".contains(byte);
    let in_domain = |byte: &u8| byte.is_ascii_alphanumeric() || b".-".contains(byte);
    let mut free = 0;
    for (sign, _) in bytes.iter().enumerate().filter(|&(_, &byte)| byte == b'@') {
        if sign < free {
            continue;
        }
        let local = bytes[free..sign].iter().rev().take_while(|byte| in_local(byte)).count();
        let Some(skipped) = bytes[sign - local..sign].iter().position(|&byte| is_word(byte)) else { continue };
        let after = &bytes[sign + 1..];
        let domain = &after[..after.iter().take_while(|byte| in_domain(byte)).count()];
        if let Some(length) = domain_length(domain) {
            free = sign + 1 + length;
            found.push((sign - local + skipped, free));
        }
    }
    found
}

/// The length of the longest domain at the beginning of a run of letters, digits, dots and hyphens.
fn domain_length(run: &[u8]) -> Option<usize> {
    let mut end = run.len();
    while let Some(dot) = run[..end].iter().rposition(|&byte| byte == b'.') {
        let letters = run[dot + 1..end].iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
        let ends = run.get(dot + 1 + letters).is_none_or(|byte| !byte.is_ascii_digit());
        let named = dot > 0 && run[dot - 1].is_ascii_alphanumeric() && run[0].is_ascii_alphanumeric();
        if letters > 1 && ends && named {
            return Some(dot + 1 + letters);
        }
        end = dot;
    }
    None
}

/// Whether digits from `start` to before `stop` are neither a part of a word nor of a decimal or grouped number.
fn is_apart(bytes: &[u8], start: usize, stop: usize) -> bool {
    let before = |distance| start.checked_sub(distance).map(|at| bytes[at]);
    let is_mark = |byte| matches!(byte, Some(b'.' | b','));
    let is_digit = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_digit());
    let after = |distance: usize| bytes.get(stop + distance).copied();
    !(before(1).is_some_and(is_word)
        || after(0).is_some_and(is_word)
        || is_mark(before(1)) && is_digit(before(2))
        || is_mark(after(0)) && is_digit(after(1)))
}

fn cards(bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut groups = Vec::new();
    let mut at = 0;
    while let Some(distance) = bytes[at..].iter().position(u8::is_ascii_digit) {
        at += distance;
        groups.clear();
        loop {
            let length = bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            groups.push((at, at + length));
            at += length;
            match bytes.get(at..at + 2) {
                Some([b' ' | b'-', digit]) if digit.is_ascii_digit() => at += 1,
                _ => break,
            }
        }
        let (start, _) = groups[0];
        if is_card(bytes, &groups) {
            found.push((start, at));
        } else {
            let single = |group: &&(usize, usize)| is_card(bytes, std::slice::from_ref(group));
            found.extend(groups.iter().filter(single));
        }
    }
    found
}

fn is_card(bytes: &[u8], groups: &[(usize, usize)]) -> bool {
    let ([(start, _), ..], [first @ .., (_, stop)]) = (groups, groups) else { return false };
    let digits: usize = groups.iter().map(|(start, stop)| stop - start).sum();
    if !(13..=19).contains(&digits)
        || first.iter().any(|(start, stop)| stop - start < 4)
        || !is_apart(bytes, *start, *stop)
    {
        return false;
    }
    let digits = || bytes[*start..*stop].iter().rev().filter(|byte| byte.is_ascii_digit()).map(|byte| byte - b'0');
    let sum: usize = digits().enumerate().map(|(place, digit)| luhn(place, digit)).sum();
    sum.is_multiple_of(10) && !digits().all(|digit| digit == bytes[*start] - b'0')
}

fn luhn(place: usize, digit: u8) -> usize {
    let digit = usize::from(digit) << (place & 1);
    if digit > 9 { digit - 9 } else { digit }
}

fn phones(bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut free = 0;
    for (sign, _) in bytes.iter().enumerate().filter(|&(_, &byte)| byte == b'+') {
        if sign < free || sign > 0 && (is_word(bytes[sign - 1]) || bytes[sign - 1] == b'+') {
            continue;
        }
        if let Some(stop) = phone_end(bytes, sign + 1) {
            free = stop;
            found.push((sign, stop));
        }
    }
    found
}

/// Where a number of 8 to 15 digits that begins at `start` ends, in groups with a blank, point, hyphen or parentheses
/// between them.
fn phone_end(bytes: &[u8], start: usize) -> Option<usize> {
    if !matches!(bytes.get(start), Some(b'1'..=b'9')) {
        return None;
    }
    let (mut at, mut digits, mut open) = (start, 0, false);
    let mut end = None;
    let (mut gaps, mut points) = (0, 0);
    loop {
        let length = bytes[at..].iter().take(16).take_while(|byte| byte.is_ascii_digit()).count();
        if length == 0 || digits + length > 15 {
            break;
        }
        digits += length;
        at += length;
        // A single point makes a decimal number.
        if !open && digits >= 8 && (gaps, points) != (1, 1) {
            end = Some(at);
        }
        if open {
            if bytes.get(at) != Some(&b')') {
                break;
            }
            open = false;
            at += 1;
        }
        if let Some(separator @ (b' ' | b'.' | b'-')) = bytes.get(at) {
            points += usize::from(*separator == b'.');
            at += 1;
        }
        if bytes.get(at) == Some(&b'(') {
            open = true;
            at += 1;
        }
        gaps += 1;
    }
    end.filter(|&end| !bytes.get(end).is_some_and(|&byte| is_word(byte)))
}

fn addresses(bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(distance) = bytes[at..].iter().position(u8::is_ascii_digit) {
        let start = at + distance;
        let length = bytes[start..].iter().take_while(|&&byte| byte == b'.' || is_word(byte)).count();
        at = start + length;
        // A point at the end is the sentence's.
        let run = bytes[start..at].strip_suffix(b".").unwrap_or(&bytes[start..at]);
        let before = start.checked_sub(1).map(|before| bytes[before]);
        if !before.is_some_and(|byte| is_word(byte) || byte == b'.') && is_global(run) {
            found.push((start, start + run.len()));
        }
    }
    found
}

/// Whether this is an IPv4 address outside the blocks for special purposes (RFC 6890 and its registry).
fn is_global(text: &[u8]) -> bool {
    let mut parts = [0; 4];
    let mut given = text.split(|&byte| byte == b'.');
    for part in &mut parts {
        let number = given.next().filter(|digits| digits.len() == 1 || digits.first() != Some(&b'0'));
        let number = number.filter(|digits| digits.len() <= 3 && digits.iter().all(u8::is_ascii_digit));
        let Some(number) = number.and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<u8>().ok()) else {
            return false;
        };
        *part = number;
    }
    given.next().is_none()
        && !matches!(
            parts,
            [0 | 10 | 127 | 240..=255, ..]
                | [100, 64..=127, ..]
                | [169, 254, ..]
                | [172, 16..=31, ..]
                | [192, 0, 0 | 2, _]
                | [192, 168, ..]
                | [198, 18 | 19, ..]
                | [198, 51, 100, _]
                | [203, 0, 113, _]
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(text: &str) -> String {
        let mut redacted = String::new();
        redact_into(text, &mut redacted);
        redacted
    }

    #[test]
    fn kinds_are_found_and_numbers_stay() {
        for (text, expected) in [
            ("é ana.b+x@mail.example.org.", "é <EMAIL>."),
            (".ana@example.org, a@b.c, a@b.c1, @example.org, a@-.org", "."),
            ("a@example.org-b", "<EMAIL>-b"),
            ("4111 1111 1111 1111 and 3782-822463-10005", "<CARD> and <CARD>"),
            ("4111111111111111 123", "<CARD> 123"),
            ("0.4111111111111111 4111111111111111.5 x4111111111111111", ""),
            ("2024-01-15 2024-02-16 12 15 18 21 24 27 30", ""),
            ("+44 20 7946 0958, +15551234567, +1.555.123.4567", "<PHONE>, <PHONE>, <PHONE>"),
            ("+44 20 7946 0958 2024-01-15", "<PHONE> 2024-01-15"),
            ("+1 (555) 123-4567 and +49(30)1234567", "<PHONE> and <PHONE>"),
            ("x+12345678 ++12345678 +1.23456789 +0123456789 +12345678901234567 +1 (23456789", ""),
            ("(8.8.8.8), 1.1.1.1/24", "(<IP>), <IP>/24"),
            ("v1.2.3.4 1.2.3 01.2.3.4 1.2.3.256 1.2.3.4.5 .1.2.3.4 1.2.3.4a 127.0.0.1", ""),
            ("224.0.0.1 192.0.1.1 172.32.0.1", "<IP> <IP> <IP>"),
        ] {
            let expected = match expected {
                "" => text.to_owned(),
                "." => text.replacen("ana@example.org", "<EMAIL>", 1),
                _ => expected.to_owned(),
            };
            assert_eq!(redacted(text), expected);
        }
    }

    #[test]
    fn an_earlier_kind_wins_and_spans_count_characters() {
        let text = "ü +4111 1111 1111 1111, é 8.8.8.8";
        let found = find(text);
        let spans = in_characters(text, &found);
        assert_eq!(
            spans,
            [Span { start: 3, stop: 22, kind: Kind::Card }, Span { start: 26, stop: 33, kind: Kind::Ip }]
        );
        assert_eq!(in_characters("", &[]), []);
    }

    #[test]
    fn hostile_texts_take_linear_time() {
        let size = 1 << 20;
        for unit in
            ["1", "@", "+", ".", "1 ", "1-", "+1", "a@", "a.", "@a.", "+1 (", "1.", "a@a.a", "+1.", "-", "%", "12 3 "]
        {
            let text = unit.repeat(size / unit.len());
            let start = std::time::Instant::now();
            assert!(find(&text).len() < size);
            // A quadratic scan takes minutes.
            assert!(start.elapsed().as_secs() < 10, "{unit}: {:?}", start.elapsed());
        }
    }
}
