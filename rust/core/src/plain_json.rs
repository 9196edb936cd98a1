//! Rows of plain records in JSON Lines.

use std::borrow::Cow;
use std::fmt::{Formatter, Result as Written};
use std::slice::from_ref;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};

use crate::plain::{ChatForm, Form, Role, Rows};

/// How far [`take`] came.
#[derive(Debug, PartialEq, Eq)]
pub struct Taken {
    /// Bytes that were read: whole lines.
    pub bytes: usize,
    /// Lines that were read, blank ones too.
    pub lines: usize,
    /// Whether the next line is not a plain record, and is not read.
    pub stopped: bool,
}

/// Add the rows of the plain records at the beginning of some lines; a record's place is the number of its line, from 0.
///
/// What is plain here is read as the same by Python's `json`, which reads more: NaN, surrogates, objects that are nested
/// deeper. `longest`: bytes of a line.
pub fn take(data: &[u8], longest: usize, form: &Form, rows: &mut Rows) -> Taken {
    let (mut bytes, mut lines) = (0, 0);
    for line in data.split_inclusive(|&byte| byte == b'\n') {
        if rows.is_full() {
            break;
        }
        let bare = line.trim_ascii();
        if line.len() > longest || !(bare.is_empty() || add(bare, lines as i64, form, rows)) {
            return Taken { bytes, lines, stopped: true };
        }
        bytes += line.len();
        lines += 1;
    }
    Taken { bytes, lines, stopped: false }
}

fn add(line: &[u8], place: i64, form: &Form, rows: &mut Rows) -> bool {
    let Ok(Ok(Item::Object(record))) = std::str::from_utf8(line).map(serde_json::from_str) else { return false };
    match form {
        Form::Pair { instruction, response, strip } => {
            let asked = record.text(instruction.as_slice());
            let Some(answer) = record.text(from_ref(response)) else { return false };
            asked.is_some() == instruction.is_some() && rows.add_pair(place, asked, answer, *strip)
        }
        Form::Chat(form) => {
            let Some(Item::List(messages)) = record.first(from_ref(&form.turns)) else { return false };
            !record.has(&form.beside_turns) && rows.add_chat(place, messages.iter().map(|item| message(item, form)))
        }
    }
}

fn message<'i>(item: &'i Item<'_>, form: &ChatForm) -> Option<(Role, &'i str)> {
    let Item::Object(fields) = item else { return None };
    let (role, text) = (fields.text(&form.role)?, fields.text(&form.content)?);
    Some((*form.meanings.get(role)?, text)).filter(|_| !fields.has(&form.beside))
}

/// A value, with its texts where they are in the line.
enum Item<'a> {
    Null,
    Text(Cow<'a, str>),
    List(Vec<Item<'a>>),
    Object(Fields<'a>),
    Other,
}

struct Fields<'a>(Vec<(Cow<'a, str>, Item<'a>)>);

impl<'a> Fields<'a> {
    /// The first value of fields that is not null; None as well if one of them is there twice.
    fn first(&self, names: &[String]) -> Option<&Item<'a>> {
        let mut first = None;
        for name in names {
            let mut values = self.0.iter().filter(|(key, _)| key == name).map(|(_, value)| value);
            let value = values.next().filter(|value| !matches!(value, Item::Null));
            if values.next().is_some() {
                return None;
            }
            first = first.or(value);
        }
        first
    }

    fn text(&self, names: &[String]) -> Option<&str> {
        match self.first(names)? {
            Item::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Whether a field has a value that is not null.
    fn has(&self, names: &[String]) -> bool {
        self.0.iter().any(|(key, value)| !matches!(value, Item::Null) && names.iter().any(|name| key == name))
    }
}

impl<'a> Deserialize<'a> for Item<'a> {
    fn deserialize<D: Deserializer<'a>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_any(Reader)
    }
}

struct Reader;

impl<'a> Visitor<'a> for Reader {
    type Value = Item<'a>;

    fn expecting(&self, to: &mut Formatter<'_>) -> Written {
        to.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Item<'a>, E> {
        Ok(Item::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Item<'a>, E> {
        Ok(Item::Other)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Item<'a>, E> {
        Ok(Item::Other)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Item<'a>, E> {
        Ok(Item::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Item<'a>, E> {
        Ok(Item::Other)
    }

    fn visit_borrowed_str<E>(self, text: &'a str) -> Result<Item<'a>, E> {
        Ok(Item::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Item<'a>, E> {
        Ok(Item::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<S: SeqAccess<'a>>(self, mut list: S) -> Result<Item<'a>, S::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Item::List(items))
    }

    fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<Item<'a>, M::Error> {
        let mut fields = Vec::new();
        while let Some(Item::Text(key)) = map.next_key()? {
            fields.push((key, map.next_value()?));
        }
        Ok(Item::Object(Fields(fields)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_up_to_the_first_that_is_not_plain() {
        let form = Form::Pair { instruction: Some("q".to_owned()), response: "a".to_owned(), strip: true };
        let good = "{\"q\": \"\\u0041\", \"x\": [{}], \"a\": \"b\"}\n \n";
        for odd in [
            "{\"q\": \"A\"}",
            "{\"q\": \"A\", \"a\": null}",
            "{\"q\": \"A\", \"a\": \"b\", \"a\": \"b\"}",
            "{\"q\": \"A\", \"a\": \"b\"} {}",
            "{\"q\": \"A\", \"a\": \"\\ud800\"}",
            "{\"q\": \"A\", \"a\": \"b\", \"x\": NaN}",
            "[]",
            "{\"q\": \"A\", \"a\": \"longer than a line may be, which is fifty bytes\"}",
        ] {
            let mut rows = Rows::default();
            let taken = take([good, odd, "\n", good].concat().as_bytes(), 50, &form, &mut rows);
            assert_eq!(taken, Taken { bytes: good.len(), lines: 2, stopped: true }, "{odd}");
            assert_eq!((rows.records, rows.instruction.data.as_str()), (1, "A"));
        }
        let mut rows = Rows::default();
        let taken = take([good, good].concat().as_bytes(), 50, &form, &mut rows);
        assert_eq!((taken.lines, taken.stopped, rows.places), (4, false, vec![0_i64, 2]));
    }
}
