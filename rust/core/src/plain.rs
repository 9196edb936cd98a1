//! Rows of plain records: pairs of texts, and chats whose questions and answers take turns.
//!
//! Readers ask for the rows of one record after another. A record that is not plain is refused, and the caller's own code
//! decides what becomes of it.

use rustc_hash::FxHashMap;

/// Bytes of the texts of one record: longer ones are refused.
const LONGEST: usize = 4 << 20;
/// Bytes of rows after which no further record is taken.
const FULL: usize = 8 << 20;
const LENGTHS: usize = 40;

/// What the role of a message means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Comes before the first question.
    System,
    /// Asks.
    User,
    /// Answers.
    Assistant,
}

impl Role {
    const fn mark(self) -> &'static str {
        match self {
            Self::System => "System:\n",
            Self::User => "User:\n",
            Self::Assistant => "Assistant:\n",
        }
    }
}

/// Where the texts of a record are.
#[derive(Debug)]
pub enum Form {
    /// In two fields; without an instruction the response is a document.
    Pair {
        /// Field of the instruction.
        instruction: Option<String>,
        /// Field of the response.
        response: String,
        /// Whether white space around them is removed.
        strip: bool,
    },
    /// In a list of messages.
    Chat(ChatForm),
}

/// Where the texts of a chat are.
#[derive(Debug)]
pub struct ChatForm {
    /// Field of the record with the messages.
    pub turns: String,
    /// Fields of a message with its role: the first with a value counts.
    pub role: Vec<String>,
    /// The same of its text.
    pub content: Vec<String>,
    /// What roles mean.
    pub meanings: FxHashMap<String, Role>,
    /// Fields of a message without a value in a plain chat.
    pub beside: Vec<String>,
    /// The same of the record.
    pub beside_turns: Vec<String>,
}

/// Texts one after another.
#[derive(Debug, Default)]
pub struct Texts {
    /// All of them.
    pub data: String,
    /// Where each ends.
    pub ends: Vec<usize>,
    /// Characters of each.
    pub lengths: Vec<usize>,
}

impl Texts {
    fn push(&mut self, text: &str, characters: usize) {
        self.data.push_str(text);
        self.ends.push(self.data.len());
        self.lengths.push(characters);
    }

    fn truncate(&mut self, rows: usize) {
        self.ends.truncate(rows);
        self.lengths.truncate(rows);
        self.data.truncate(self.ends.last().copied().unwrap_or_default());
    }

    /// The texts.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.data[start..end])
    }

    /// Counts of texts by the bits of their lengths.
    pub fn bits(&self) -> [i64; LENGTHS] {
        let mut counts = [0; LENGTHS];
        for length in &self.lengths {
            counts[((usize::BITS - length.leading_zeros()) as usize).min(LENGTHS - 1)] += 1;
        }
        counts
    }
}

/// Rows of consecutive records.
#[derive(Debug, Default)]
pub struct Rows {
    /// Their instructions.
    pub instruction: Texts,
    /// Their responses.
    pub response: Texts,
    /// Of each row the place that its record was added with.
    pub places: Vec<i64>,
    /// Records that gave them.
    pub records: usize,
    /// Characters of the instructions of chats that a longer one of the same chat has too.
    pub repeated: usize,
    /// Chats that end with a question.
    pub unanswered: usize,
    history: String,
}

impl Rows {
    /// Whether no further record should be added.
    pub fn is_full(&self) -> bool {
        self.instruction.data.len() + self.response.data.len() > FULL
    }

    /// Add the row of a pair; whether it is plain. A document's instruction is None.
    pub fn add_pair(&mut self, place: i64, instruction: Option<&str>, response: &str, strip: bool) -> bool {
        let bare = instruction.map(stripped);
        let answer = stripped(response);
        if bare == Some("") || answer.is_empty() || bare.unwrap_or_default().len() + answer.len() > LONGEST {
            return false;
        }
        let (asked, answer) = if strip { (bare, answer) } else { (instruction, response) };
        let asked = asked.unwrap_or_default();
        self.push(place, asked, asked.chars().count(), answer, answer.chars().count());
        self.records += 1;
        true
    }

    /// Add a row for each answer of a chat; whether it is plain. A message without a plain text is None.
    pub fn add_chat<'a>(&mut self, place: i64, messages: impl IntoIterator<Item = Option<(Role, &'a str)>>) -> bool {
        let rows = self.places.len();
        let mut history = std::mem::take(&mut self.history);
        history.clear();
        let awaited = self.answers(place, messages, &mut history);
        self.history = history;
        let Some(awaited) = awaited.filter(|_| self.places.len() > rows) else {
            self.instruction.truncate(rows);
            self.response.truncate(rows);
            self.places.truncate(rows);
            return false;
        };
        self.records += 1;
        self.unanswered += usize::from(awaited == Role::Assistant);
        let prompts = &self.instruction.lengths[rows..];
        self.repeated += prompts.iter().rev().skip(1).sum::<usize>();
        true
    }

    /// Add the rows of a chat; the role that it waits for at its end, if it is plain.
    fn answers<'a>(
        &mut self,
        place: i64,
        messages: impl IntoIterator<Item = Option<(Role, &'a str)>>,
        history: &mut String,
    ) -> Option<Role> {
        let (mut awaited, mut question, mut blocks, mut characters, mut bytes) = (Role::User, "", 0, 0, 0);
        for message in messages {
            let (role, text) = message?;
            let text = stripped(text);
            if text.is_empty() || (role != awaited && (role != Role::System || blocks > 0)) {
                return None;
            }
            let length = text.chars().count();
            match role {
                Role::User => (question, awaited) = (text, Role::Assistant),
                Role::Assistant => {
                    bytes += history.len();
                    if bytes > LONGEST {
                        return None;
                    }
                    if blocks > 1 {
                        self.push(place, history, characters, text, length);
                    } else {
                        let begins = question.split('\n').next().is_some_and(is_mark);
                        let asked = if begins { format!("\\{question}") } else { question.to_owned() };
                        self.push(place, &asked, asked.chars().count(), text, length);
                    }
                    awaited = Role::User;
                }
                Role::System => {}
            }
            if blocks > 0 {
                history.push_str("\n\n");
                characters += 2;
            }
            blocks += 1;
            history.push_str(role.mark());
            characters += role.mark().len() + length + push_escaped(history, text);
        }
        Some(awaited)
    }

    fn push(&mut self, place: i64, instruction: &str, asked: usize, response: &str, answered: usize) {
        self.instruction.push(instruction, asked);
        self.response.push(response, answered);
        self.places.push(place);
    }
}

/// Whether a line could be read as the mark of a turn, behind any backslashes.
fn is_mark(line: &str) -> bool {
    line.ends_with(':')
        && matches!(line.trim_start_matches('\\'), "System:" | "User:" | "Assistant:" | "Tool:" | "Tool call:")
}

/// Append a text with a backslash before each line that is a mark; how many there are.
fn push_escaped(to: &mut String, text: &str) -> usize {
    let mut marks = 0;
    for (number, line) in text.split('\n').enumerate() {
        if number > 0 {
            to.push('\n');
        }
        if is_mark(line) {
            to.push('\\');
            marks += 1;
        }
        to.push_str(line);
    }
    marks
}

/// The text without white space around it, as Python has it: four separators are some, beside Unicode's.
fn stripped(text: &str) -> &str {
    text.trim_matches(|character: char| character.is_whitespace() || ('\u{1C}'..='\u{1F}').contains(&character))
}

/// Append rows as JSON Lines: compact, nothing but quotes, backslashes and control characters escaped.
pub fn write_json<'a>(to: &mut Vec<u8>, names: &[String], texts: impl IntoIterator<Item = &'a str>) {
    let mut texts = texts.into_iter();
    while !names.is_empty() {
        for (at, name) in names.iter().enumerate() {
            let Some(text) = texts.next() else { return };
            to.push(if at == 0 { b'{' } else { b',' });
            write_quoted(to, name);
            to.push(b':');
            write_quoted(to, text);
        }
        to.extend_from_slice(b"}\n");
    }
}

fn write_quoted(to: &mut Vec<u8>, text: &str) {
    to.push(b'"');
    let bytes = text.as_bytes();
    let mut start = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        if byte >= b' ' && byte != b'"' && byte != b'\\' {
            continue;
        }
        to.extend_from_slice(&bytes[start..at]);
        start = at + 1;
        let short = match byte {
            b'"' | b'\\' => byte,
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            0x08 => b'b',
            0x0C => b'f',
            _ => {
                to.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
                continue;
            }
        };
        to.extend_from_slice(&[b'\\', short]);
    }
    to.extend_from_slice(&bytes[start..]);
    to.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(messages: &[(Role, &str)]) -> Option<Vec<[String; 2]>> {
        let mut rows = Rows::default();
        assert!(rows.add_pair(0, Some(" a "), "b", true));
        let plain = rows.add_chat(1, messages.iter().copied().map(Some));
        assert_eq!((rows.instruction.iter().next(), rows.records), (Some("a"), 1 + usize::from(plain)));
        let all = rows.instruction.iter().zip(rows.response.iter()).map(|(a, b)| [a.to_owned(), b.to_owned()]);
        plain.then(|| all.skip(1).collect())
    }

    #[test]
    fn turns_make_rows_with_all_that_was_said_before() {
        use Role::{Assistant, System, User};
        let two = [(User, "\x1c1?\n"), (Assistant, "1\nUser:"), (User, "2?"), (Assistant, "2")];
        let second = "User:\n1?\n\nAssistant:\n1\n\\User:\n\nUser:\n2?";
        assert_eq!(rows(&two), Some([["1?", "1\nUser:"], [second, "2"]].map(|row| row.map(str::to_owned)).to_vec()));
        assert_eq!(rows(&[(User, "\\Tool:\nUser:"), (Assistant, "x")]).unwrap()[0][0], "\\\\Tool:\nUser:");
        for odd in [&two[1..], &two[..1], &[two[0], two[0]], &[two[0], two[1], two[1]], &[two[0], (System, "x")], &[]] {
            assert_eq!(rows(odd), None);
        }
        assert_eq!(rows(&[(User, "1?"), (Assistant, " \x1f")]), None);
    }

    #[test]
    fn what_is_written_is_read_back() {
        let all: String = (0..0x180).filter_map(char::from_u32).chain(['\u{2028}', '😀']).collect();
        let mut data = Vec::new();
        write_json(&mut data, &["a".to_owned(), "\"".to_owned()], [all.as_str(), "", "x", "y"]);
        let lines: Vec<Vec<(String, String)>> = data
            .split(|&byte| byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice::<std::collections::BTreeMap<_, _>>(line).unwrap().into_iter().collect())
            .collect();
        let pair = |a: &str, b: &str| vec![("\"".to_owned(), b.to_owned()), ("a".to_owned(), a.to_owned())];
        assert_eq!(lines, [pair(&all, ""), pair("x", "y")]);
    }
}
