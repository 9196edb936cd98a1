//! Whether two rows are duplicates: a symmetric function of the two alone.

use std::cell::OnceCell;

use super::grams::{Hashes, OF_PAIR, set, shared};
use super::sketch::{Field, Kind, Sketch};
use super::{Fields, NumberGuard, Settings, documents};

/// The least shorter length, as a share of the longer one.
const LENGTH: f64 = 0.70;
/// The least share of common 3-grams.
const COMMON: f64 = 0.75;
/// A run of so many tokens without a common 3-gram in both instructions is a slot.
const SLOT: usize = 8;
/// Of so many tokens one may have a typing error.
const TYPING: usize = 20;

/// What decided: the rule passed last, or the first that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Rule {
    /// Passed: equal instructions, and responses alike.
    EqualInstruction,
    /// Passed: one instruction is a block of the other, and the responses are equal labels.
    WeakBlock,
    /// Passed: both fields are alike.
    Strong,
    /// Of documents: the Jaccard index decided.
    Document,
    /// Failed, of documents: one is part of the other.
    Contained,
    /// Failed: other numbers.
    Numbers,
    /// Failed: the responses are not alike.
    Response,
    /// Failed: an instruction is short, and they are not equal.
    ShortInstruction,
    /// Failed: neither instruction is a block of the other.
    WeakInstruction,
    /// Failed: one instruction is much longer.
    InstructionLength,
    /// Failed: the instructions share few 3-grams.
    Instruction,
    /// Failed: the instructions have one slot, filled in two ways.
    Slot,
    /// Failed: a pair and a document.
    Kind,
}

impl Rule {
    /// All, by number.
    pub const ALL: [Self; 13] = [
        Self::EqualInstruction,
        Self::WeakBlock,
        Self::Strong,
        Self::Document,
        Self::Contained,
        Self::Numbers,
        Self::Response,
        Self::ShortInstruction,
        Self::WeakInstruction,
        Self::InstructionLength,
        Self::Instruction,
        Self::Slot,
        Self::Kind,
    ];

    /// The name in decisions.
    pub fn name(self) -> &'static str {
        match self {
            Self::EqualInstruction => "equal_instruction",
            Self::WeakBlock => "weak_block",
            Self::Strong => "strong",
            Self::Document => "document",
            Self::Contained => "contained",
            Self::Numbers => "numbers",
            Self::Response => "response",
            Self::ShortInstruction => "short_instruction",
            Self::WeakInstruction => "weak_instruction",
            Self::InstructionLength => "instruction_length",
            Self::Instruction => "instruction",
            Self::Slot => "slot",
            Self::Kind => "kind",
        }
    }
}

/// What was found of two rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// Whether they are duplicates.
    pub duplicate: bool,
    /// What decided.
    pub rule: Rule,
    /// Share of common 3-grams of the instructions, 0 if no rule asked; of documents, the containment.
    pub instruction: f64,
    /// That of the responses; of documents, the Jaccard index.
    pub response: f64,
}

/// A row, with what was computed of it for comparisons.
pub struct Row<'a> {
    sketch: Sketch<'a>,
    instruction: OnceCell<Vec<u64>>,
    response: OnceCell<Vec<u64>>,
    words: OnceCell<Vec<&'a str>>,
}

impl<'a> Row<'a> {
    /// The row of a sketch.
    pub fn new(sketch: Sketch<'a>) -> Self {
        Self { sketch, instruction: OnceCell::new(), response: OnceCell::new(), words: OnceCell::new() }
    }

    fn field(&self, side: Side) -> Field<'a> {
        match side {
            Side::Instruction => self.sketch.instruction,
            Side::Response => self.sketch.response,
        }
    }

    /// The grams of a field, ascending and distinct.
    fn grams(&self, side: Side) -> &[u64] {
        match side {
            Side::Instruction => self.instruction.get_or_init(|| set(self.sketch.instruction.tokens.threes())),
            Side::Response => self.response(),
        }
    }

    fn response(&self) -> &[u64] {
        self.response.get_or_init(|| match self.sketch.kind {
            Kind::Pair => set(self.sketch.response.tokens.threes()),
            Kind::Document => set(self.sketch.response.tokens.fives()),
        })
    }

    fn words(&self) -> &[&'a str] {
        self.words.get_or_init(|| self.sketch.words())
    }

    /// The number of grams of a document.
    pub(super) fn size(&self) -> usize {
        self.response().len()
    }
}

/// Compare two rows.
pub fn verify(a: &Row<'_>, b: &Row<'_>, settings: &Settings) -> Verdict {
    compare(a, b, settings, true)
}

/// As `verify`, for a caller that asks for the scores of duplicates and documents alone.
pub(super) fn decide(a: &Row<'_>, b: &Row<'_>, settings: &Settings) -> Verdict {
    compare(a, b, settings, false)
}

fn compare(a: &Row<'_>, b: &Row<'_>, settings: &Settings, scored: bool) -> Verdict {
    let not = |rule| Verdict { duplicate: false, rule, instruction: 0.0, response: 0.0 };
    if settings.fields != Fields::Pair {
        return one_field(a, b, settings, scored);
    }
    if a.sketch.kind != b.sketch.kind {
        return not(Rule::Kind);
    }
    if a.sketch.kind == Kind::Document {
        return documents::verify(a.response(), b.response(), settings);
    }
    let [x, y] = [&a.sketch, &b.sketch];
    let numbers = match settings.number_guard {
        NumberGuard::Both => x.instruction.numbers == y.instruction.numbers && x.response.numbers == y.response.numbers,
        NumberGuard::Instruction => x.instruction.numbers == y.instruction.numbers,
        NumberGuard::Off => true,
    };
    if !numbers {
        return not(Rule::Numbers);
    }
    let lengths = [x, y].map(|sketch| sketch.response.tokens.len());
    let strong = lengths.iter().all(|&length| length >= settings.min_response);
    let response = if x.response.equals(&y.response) {
        1.0
    } else if strong && ratio(lengths) >= LENGTH {
        let common = common(a.grams(Side::Response), b.grams(Side::Response));
        if common < COMMON {
            return Verdict { response: common, ..not(Rule::Response) };
        }
        common
    } else {
        return not(Rule::Response);
    };
    let verdict = instructions(a, b, Side::Instruction, strong, settings, scored);
    Verdict { response, ..verdict }
}

/// One of the two texts of a row.
#[derive(Clone, Copy)]
enum Side {
    Instruction,
    Response,
}

/// Rules 3 to 6 on one field, whose length says whether it may differ.
fn one_field(a: &Row<'_>, b: &Row<'_>, settings: &Settings, scored: bool) -> Verdict {
    let side = if settings.fields == Fields::Instruction { Side::Instruction } else { Side::Response };
    let strong = a.field(side).tokens.len().min(b.field(side).tokens.len()) >= settings.min_response;
    let verdict = instructions(a, b, side, strong, settings, scored);
    match side {
        Side::Instruction => verdict,
        Side::Response => Verdict { instruction: 0.0, response: verdict.instruction, ..verdict },
    }
}

/// Rules 3 to 6 on the instruction, or on what is taken for one; the score is that of the instructions.
fn instructions(a: &Row<'_>, b: &Row<'_>, side: Side, strong: bool, settings: &Settings, scored: bool) -> Verdict {
    let (x, y) = (a.field(side), b.field(side));
    let verdict = |duplicate, rule, instruction| Verdict { duplicate, rule, instruction, response: 0.0 };
    if x.is_blank() || y.is_blank() {
        return verdict(false, Rule::ShortInstruction, 0.0);
    }
    if x.equals(&y) {
        return verdict(true, Rule::EqualInstruction, 1.0);
    }
    let lengths = [x.tokens.len(), y.tokens.len()];
    if lengths.iter().any(|&length| length < settings.min_instruction) {
        return verdict(false, Rule::ShortInstruction, 0.0);
    }
    if !strong {
        let block = ratio(lengths) >= LENGTH && is_block([(x.tokens, a.words()), (y.tokens, b.words())]);
        // Of most rows of a template this is the only reason to make sets of grams.
        let score = if block || scored { common(a.grams(side), b.grams(side)) } else { 0.0 };
        return verdict(block, if block { Rule::WeakBlock } else { Rule::WeakInstruction }, score);
    }
    if ratio(lengths) < LENGTH {
        return verdict(false, Rule::InstructionLength, 0.0);
    }
    let (mine, theirs) = (a.grams(side), b.grams(side));
    let score = common(mine, theirs);
    if score < COMMON {
        return verdict(false, Rule::Instruction, score);
    }
    if longest_hole(x.tokens, theirs) >= SLOT && longest_hole(y.tokens, mine) >= SLOT {
        return verdict(false, Rule::Slot, score);
    }
    verdict(true, Rule::Strong, score)
}

/// The shorter length as a share of the longer one.
fn ratio([a, b]: [usize; 2]) -> f64 {
    let (shorter, longer) = (a.min(b), a.max(b));
    if longer == 0 { 1.0 } else { shorter as f64 / longer as f64 }
}

/// The share of common grams of the smaller set; 0 if it is empty.
fn common(a: &[u64], b: &[u64]) -> f64 {
    let smaller = a.len().min(b.len());
    if smaller == 0 { 0.0 } else { shared(a, b) as f64 / smaller as f64 }
}

/// The longest run of tokens that no gram in `others` covers.
fn longest_hole(tokens: Hashes<'_>, others: &[u64]) -> usize {
    let (mut longest, mut covered) = (0, 0);
    for (place, gram) in tokens.threes().enumerate() {
        if others.binary_search(&gram).is_ok() {
            longest = longest.max(place.saturating_sub(covered));
            covered = place + OF_PAIR;
        }
    }
    longest.max(tokens.len().saturating_sub(covered))
}

/// Whether the shorter text is a block of the longer one, but for a few typing errors.
fn is_block(texts: [(Hashes<'_>, &[&str]); 2]) -> bool {
    let [(short, short_words), (long, long_words)] = texts;
    if short.len() > long.len() {
        let [a, b] = texts;
        return is_block([b, a]);
    }
    let most = short.len().div_ceil(TYPING);
    (0..=long.len() - short.len()).any(|start| {
        let mut errors = 0;
        (0..short.len()).all(|place| {
            short.at(place) == long.at(start + place) || {
                errors += 1;
                let words = short_words.get(place).zip(long_words.get(start + place));
                errors <= most && words.is_some_and(|(a, b)| misspelt(a, b))
            }
        })
    })
}

/// Whether one word is the other with one letter replaced, left out, added, or two neighbours exchanged, and the same first
/// letter. Words that do not count are empty.
fn misspelt(a: &str, b: &str) -> bool {
    if a.is_empty() || b.is_empty() || a.chars().next() != b.chars().next() {
        return false;
    }
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    // Bytes say at most how much the numbers of characters differ.
    if long.len() - short.len() > 4 {
        return false;
    }
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let (short, long) = if a.len() <= b.len() { (&a, &b) } else { (&b, &a) };
    let ahead = short.iter().zip(long).take_while(|(x, y)| x == y).count();
    let (short, long) = (&short[ahead..], &long[ahead..]);
    match long.len() - short.len() {
        0 => match (short, long) {
            ([_, left @ ..], [_, right @ ..]) if left == right => true,
            ([a, b, left @ ..], [c, d, right @ ..]) => a == d && b == c && left == right,
            _ => false,
        },
        1 => long.get(1..) == Some(short),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::sketch::Maker;
    use super::*;

    fn verdict(a: (&str, &str), b: (&str, &str), settings: &Settings) -> (bool, &'static str) {
        let [a, b] = [a, b].map(|(instruction, response)| {
            let mut bytes = Vec::new();
            Maker::default().push(instruction, response, settings, &mut bytes);
            bytes
        });
        let [a, b] = [&a, &b].map(|bytes| Row::new(Sketch::read(bytes).unwrap()));
        let found = verify(&a, &b, settings);
        assert_eq!(found, verify(&b, &a, settings));
        (found.duplicate, found.rule.name())
    }

    fn words(count: usize, first: &str) -> String {
        (0..count)
            .map(|word| format!("{first}{}", char::from(b'a' + (word % 26) as u8).to_string().repeat(word / 26 + 1)))
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn one_typing_error_is_one_edit_behind_the_first_letter() {
        for (a, b) in [("letter", "lettre"), ("letters", "letter"), ("letter", "lettar"), ("straßen", "strasen")] {
            assert!(misspelt(a, b) && misspelt(b, a), "{a} {b}");
        }
        for (a, b) in
            [("letter", "letter"), ("letter", "better"), ("letter", "lettres"), ("letter", ""), ("letter", "leetrr")]
        {
            assert!(!misspelt(a, b) && !misspelt(b, a), "{a} {b}");
        }
    }

    #[test]
    fn the_number_guard_is_of_the_fields_that_are_asked_for() {
        let (a, b) = (("Add 3 and 4.", "7"), ("Add 3 and 4!", "7."));
        let of = |number_guard| Settings { number_guard, min_response: 0, min_instruction: 0, ..Settings::default() };
        for guard in [NumberGuard::Both, NumberGuard::Instruction, NumberGuard::Off] {
            assert_eq!(verdict(a, b, &of(guard)), (true, "equal_instruction"));
        }
        let (a, b) = ((words(30, "q"), words(30, "r") + " 7"), (words(30, "q"), words(30, "r") + " 8"));
        let pair = |row: &(String, String), guard| {
            let other: &(String, String) = if row.1 == a.1 { &b } else { &a };
            verdict((&row.0, &row.1), (&other.0, &other.1), &of(guard))
        };
        assert_eq!(pair(&a, NumberGuard::Both), (false, "numbers"));
        assert_eq!(pair(&a, NumberGuard::Instruction), (true, "equal_instruction"));
        assert_eq!(pair(&a, NumberGuard::Off), (true, "equal_instruction"));
    }

    #[test]
    fn with_a_label_only_phrases_at_an_end_and_typing_errors_may_differ() {
        let settings = Settings::default();
        let question = words(40, "question");
        let phrase = format!("please help me {question}");
        let typing = question.replace("questionc", "qeustionc");
        let other = question.replace("questionc", "different");
        assert_eq!(verdict((&question, "yes"), (&phrase, "Yes."), &settings), (true, "weak_block"));
        assert_eq!(verdict((&question, "yes"), (&typing, "yes"), &settings), (true, "weak_block"));
        assert_eq!(verdict((&question, "yes"), (&other, "yes"), &settings), (false, "weak_instruction"));
        assert_eq!(verdict((&question, "yes"), (&phrase, "no"), &settings), (false, "response"));
        assert_eq!(
            verdict(("a short question", "yes"), ("another short question", "yes"), &settings),
            (false, "short_instruction")
        );
        let twice = format!("{question} {question}");
        assert_eq!(verdict((&question, "yes"), (&twice, "yes"), &settings), (false, "weak_instruction"));
    }

    #[test]
    fn a_long_answer_lets_the_question_differ_but_for_a_slot() {
        let settings = Settings::default();
        let (question, answer) = (words(60, "q"), words(60, "r"));
        let filled = |slot: &str| format!("{question} {}", words(10, slot));
        assert_eq!(verdict((&question, &answer), (&filled("x"), &answer), &settings), (true, "strong"));
        assert_eq!(verdict((&filled("y"), &answer), (&filled("x"), &answer), &settings), (false, "slot"));
        assert_eq!(verdict((&words(20, "q"), &answer), (&question, &answer), &settings), (false, "instruction_length"));
        assert_eq!(verdict((&words(60, "z"), &answer), (&question, &answer), &settings), (false, "instruction"));
    }

    #[test]
    fn one_field_is_compared_without_the_other_and_a_document_never_with_a_pair() {
        let (question, answer) = (words(60, "q"), words(60, "r"));
        let only = |fields| Settings { fields, ..Settings::default() };
        let instruction = only(Fields::Instruction);
        assert_eq!(verdict((&question, "3"), (&question, "4"), &instruction), (true, "equal_instruction"));
        assert_eq!(verdict(("", "3"), ("", "3"), &instruction), (false, "short_instruction"));
        assert_eq!(verdict(("3", &answer), ("4", &format!("{answer} so")), &only(Fields::Response)), (true, "strong"));
        assert_eq!(verdict(("", &answer), (&question, &answer), &Settings::default()), (false, "kind"));
        assert_eq!(verdict(("", "1 2 3"), (" \u{200b}", "1 2 3!"), &Settings::default()), (true, "document"));
        assert_eq!(verdict(("", &words(30, "r")), ("", &answer), &Settings::default()), (false, "contained"));
    }

    #[test]
    fn fields_without_tokens_are_equal_if_their_light_forms_are() {
        let settings = Settings::default();
        assert_eq!(verdict(("what?", "!"), ("what", " !"), &settings), (true, "equal_instruction"));
        assert_eq!(verdict(("what?", "!"), ("what", "?"), &settings), (false, "response"));
        assert_eq!(verdict(("?", "ok"), ("!", "ok"), &settings), (false, "short_instruction"));
    }
}
