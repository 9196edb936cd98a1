//! Rows of plain records in JSON Lines.

use std::borrow::Cow;
use std::fmt::{Formatter, Result as Written};

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

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
    let Ok(line) = std::str::from_utf8(line) else { return false };
    let mut json = serde_json::Deserializer::from_str(line);
    match form {
        Form::Pair { instruction, response, strip } => {
            let names = [instruction.as_deref(), Some(response)];
            let Ok([asked, answer]) = Fields(names).deserialize(&mut json) else { return false };
            let Some(answer) = answer else { return false };
            json.end().is_ok()
                && asked.is_some() == instruction.is_some()
                && rows.add_pair(place, asked.as_deref(), &answer, *strip)
        }
        Form::Chat(form) => {
            let Ok(messages) = Record(form).deserialize(&mut json) else { return false };
            let messages = messages.iter().map(|(role, text)| Some((*role, text.as_ref())));
            json.end().is_ok() && rows.add_chat(place, messages)
        }
    }
}

#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// The texts in two fields of an object.
struct Fields<'f>([Option<&'f str>; 2]);

impl<'a> DeserializeSeed<'a> for Fields<'_> {
    type Value = [Option<Cow<'a, str>>; 2];

    fn deserialize<D: Deserializer<'a>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for Fields<'_> {
    type Value = [Option<Cow<'a, str>>; 2];

    fn expecting(&self, to: &mut Formatter<'_>) -> Written {
        to.write_str("an object with texts")
    }

    fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut values = [None, None];
        while let Some(Text(key)) = map.next_key()? {
            if !self.0.contains(&Some(&key)) {
                map.next_value::<Value>()?;
                continue;
            }
            let Text(value) = map.next_value()?;
            for (name, found) in self.0.iter().zip(&mut values) {
                if *name == Some(&key) && found.replace(value.clone()).is_some() {
                    return Err(M::Error::custom("a key occurs twice"));
                }
            }
        }
        Ok(values)
    }
}

/// The messages of a record.
struct Record<'f>(&'f ChatForm);

impl<'a> DeserializeSeed<'a> for Record<'_> {
    type Value = Vec<(Role, Cow<'a, str>)>;

    fn deserialize<D: Deserializer<'a>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for Record<'_> {
    type Value = Vec<(Role, Cow<'a, str>)>;

    fn expecting(&self, to: &mut Formatter<'_>) -> Written {
        to.write_str("an object with messages")
    }

    fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut messages = None;
        while let Some(Text(key)) = map.next_key()? {
            if key != self.0.turns {
                let value: Value = map.next_value()?;
                refuse_beside(&self.0.beside_turns, &key, &value)?;
            } else if messages.replace(map.next_value_seed(Messages(self.0))?).is_some() {
                return Err(M::Error::custom("a key occurs twice"));
            }
        }
        messages.ok_or_else(|| M::Error::custom("no messages"))
    }
}

struct Messages<'f>(&'f ChatForm);

impl<'a> DeserializeSeed<'a> for Messages<'_> {
    type Value = Vec<(Role, Cow<'a, str>)>;

    fn deserialize<D: Deserializer<'a>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'a> Visitor<'a> for Messages<'_> {
    type Value = Vec<(Role, Cow<'a, str>)>;

    fn expecting(&self, to: &mut Formatter<'_>) -> Written {
        to.write_str("a list of messages")
    }

    fn visit_seq<S: SeqAccess<'a>>(self, mut list: S) -> Result<Self::Value, S::Error> {
        let mut messages = Vec::new();
        while let Some(message) = list.next_element_seed(Message(self.0))? {
            messages.push(message);
        }
        Ok(messages)
    }
}

struct Message<'f>(&'f ChatForm);

impl<'a> DeserializeSeed<'a> for Message<'_> {
    type Value = (Role, Cow<'a, str>);

    fn deserialize<D: Deserializer<'a>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for Message<'_> {
    type Value = (Role, Cow<'a, str>);

    fn expecting(&self, to: &mut Formatter<'_>) -> Written {
        to.write_str("a message")
    }

    fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        // Of each field that may have the role or the text what it has: None = it is not there.
        let (roles, contents) = (&self.0.role, &self.0.content);
        let mut values: Vec<Option<Option<Text<'a>>>> = Vec::new();
        values.resize_with(roles.len() + contents.len(), || None);
        while let Some(Text(key)) = map.next_key()? {
            let Some(place) = roles.iter().chain(contents).position(|name| *name == key) else {
                let value: Value = map.next_value()?;
                refuse_beside(&self.0.beside, &key, &value)?;
                continue;
            };
            if values[place].replace(map.next_value()?).is_some() {
                return Err(M::Error::custom("a key occurs twice"));
            }
        }
        let mut first = |keys: &[String]| values.drain(..keys.len()).flatten().flatten().next();
        let (role, content) = (first(roles), first(contents));
        let (Text(role), Text(content)) = role.zip(content).ok_or_else(|| M::Error::custom("no role or no text"))?;
        let meaning = self.0.meanings.get(role.as_ref()).ok_or_else(|| M::Error::custom("another role"))?;
        Ok((*meaning, content))
    }
}

fn refuse_beside<E: Error>(names: &[String], key: &str, value: &Value) -> Result<(), E> {
    if value.is_null() || !names.iter().any(|name| name == key) {
        return Ok(());
    }
    Err(E::custom("a field that a plain chat does not have"))
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
