//! Rows against an index.

use rustc_hash::{FxHashMap, FxHashSet};
use xxhash_rust::xxh3::xxh3_64;

use super::index::{Index, Part, U32s, read_u64};
use super::{GRAM, SEED, Weighed, distinct_grams, gram, rarest, seeds, threshold, weight};
use crate::curate::text::{Numbers, Tokens};

/// Share of an answer that counts as the answer.
const ANSWERED: f64 = 0.8;
/// An answer of at most this many tokens has to be a block, and of a longer response than `BRIEF` only begin or end count.
const FEW: usize = 3;
const BRIEF: usize = 50;
const BEGIN: usize = 10;
const END: usize = 20;
/// Grams that may be looked at for each token of a field, and for a field at all.
const STEPS_A_TOKEN: usize = 16;
const STEPS: usize = 1 << 20;
const WEIGHTS: usize = 1024;
const NOWHERE: u32 = u32::MAX;

/// How much of an item a row repeats, from the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Verdict {
    /// Its question and its answer.
    QuestionAnswer,
    /// Its question.
    Question,
    /// Its question with other numbers.
    Variant,
    /// Its question, which has fewer than five tokens.
    ShortQuestion,
}

/// Where the question was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Field {
    /// In the instruction.
    Instruction,
    /// In the response.
    Response,
}

/// A row repeats an item.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hit {
    /// The item's number in the index.
    pub item: u32,
    /// How much of it.
    pub verdict: Verdict,
    /// Where.
    pub field: Field,
    /// Share of the question's weight, from 0 to 1.
    pub question: f64,
    /// Share of the best answer, from 0 to 1.
    pub answer: f64,
    /// The first token and the one after the last of the window with that share; none if the whole field was looked at.
    pub window: Option<(u32, u32)>,
}

/// A field of a row.
#[derive(Default)]
struct Text {
    tokens: Vec<u32>,
    /// Its grams that are rare ones of a question.
    rare: Vec<u64>,
    /// The questions that it can have, each once.
    candidates: Vec<u32>,
    /// Steps that are left.
    budget: usize,
}

impl Text {
    /// Find the questions that have a rare gram of the field. Whether there is one.
    fn find_candidates(&mut self, index: Index<'_>, unscored: &mut u64) -> bool {
        self.candidates.clear();
        self.rare.clear();
        let grams = self.tokens.windows(GRAM).map(gram);
        self.rare.extend(grams.filter(|&one| index.rare(one).next().is_some()));
        self.rare.sort_unstable();
        // A text that repeats itself has many times the same.
        self.rare.dedup();
        self.budget = STEPS + STEPS_A_TOKEN * self.tokens.len();
        for &one in &self.rare {
            self.candidates.extend(index.rare(one).take(self.budget));
            self.budget = self.budget.saturating_sub(index.rare(one).take(self.budget).count());
            if self.budget == 0 {
                *unscored += 1;
                break;
            }
        }
        self.candidates.sort_unstable();
        self.candidates.dedup();
        !self.candidates.is_empty()
    }
}

/// Where the grams of a field are.
#[derive(Default)]
struct Places {
    /// Gram and first place, by hash; `NOWHERE` in an empty slot.
    slots: Vec<(u64, u32)>,
    /// Of the gram at each place the next place.
    next: Vec<u32>,
}

impl Places {
    fn fill(&mut self, tokens: &[u32]) {
        let many = (tokens.len() + 1).saturating_sub(GRAM);
        self.slots.clear();
        self.slots.resize((2 * many).next_power_of_two().max(2), (0, NOWHERE));
        self.next.clear();
        self.next.resize(many, NOWHERE);
        for place in (0..many).rev() {
            let one = gram(&tokens[place..place + GRAM]);
            let slot = self.slot(one);
            self.next[place] = self.slots[slot].1;
            self.slots[slot] = (one, place as u32);
        }
    }

    fn slot(&self, gram: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = gram as usize & mask;
        while self.slots[slot].1 != NOWHERE && self.slots[slot].0 != gram {
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn first(&self, gram: u64) -> Option<u32> {
        Some(self.slots[self.slot(gram)].1).filter(|&place| place != NOWHERE)
    }

    fn all(&self, gram: u64) -> impl Iterator<Item = u32> {
        std::iter::successors(self.first(gram), |&place| Some(self.next[place as usize]).filter(|&at| at != NOWHERE))
    }
}

/// A question that is being scored.
#[derive(Default)]
struct Question {
    tokens: Vec<u32>,
    grams: Vec<u64>,
    weights: Vec<f64>,
    weighed: Vec<Weighed>,
    total: f64,
    seen: FxHashSet<u64>,
    /// Number of each gram, and the window in which it was seen last.
    places: FxHashMap<u64, u32>,
    stamps: Vec<u32>,
}

/// The best share of a question in a field.
#[derive(Clone, Copy)]
struct Found {
    share: f64,
    window: Option<(u32, u32)>,
}

/// What a row's response has, read when an answer is first looked for.
#[derive(Default)]
struct Response {
    /// The last place of each block of one, two and three tokens.
    blocks: [Option<FxHashMap<u64, u32>>; FEW],
}

impl Response {
    fn last(&mut self, tokens: &[u32], block: u64, length: usize) -> Option<u32> {
        let places = self.blocks[length - 1].get_or_insert_with(|| {
            (0..).zip(tokens.windows(length)).map(|(place, block)| (gram(block), place)).collect()
        });
        places.get(&block).copied()
    }
}

/// Scores one row after another, in buffers that stay.
#[derive(Default)]
pub struct Scorer {
    reader: Tokens,
    numbers: Numbers,
    fields: [Text; 2],
    places: Places,
    question: Question,
    weights: Vec<f64>,
    windows: Vec<u32>,
    /// Candidates that were not looked at because a field had too many.
    pub unscored: u64,
}

impl Scorer {
    /// The items that a row repeats, the worst first.
    pub fn row(&mut self, index: Index<'_>, instruction: &str, response: &str, hits: &mut Vec<Hit>) {
        hits.clear();
        let texts = [instruction, response];
        let mut seeded = false;
        let filter = index.filter();
        for (field, text) in self.fields.iter_mut().zip(texts) {
            self.reader.read(text);
            field.tokens.clear();
            self.reader.hashes_into(&mut field.tokens);
            // All grams of a question's seed are in the index: what the filter lets through by chance mostly ends here.
            seeded = seeded
                || seeds(&field.tokens).zip(field.tokens.windows(SEED)).any(|(seed, tokens)| {
                    filter.may_have(seed) && tokens.windows(GRAM).all(|one| index.number(gram(one)).is_some())
                });
        }
        let few = self.fields[0].tokens.len() < SEED;
        if !seeded && !few {
            return;
        }
        let mut row = Row { index, texts, numbers: [None, None], seeds: None, response: Response::default() };
        if few {
            self.short(&mut row, hits);
        }
        if seeded {
            self.long(&mut row, hits);
        }
        let order = index.numbers(Part::ItemOrder);
        hits.sort_by_key(|hit| (hit.verdict, order.get(hit.item as usize)));
    }

    fn short(&mut self, row: &mut Row<'_>, hits: &mut Vec<Hit>) {
        let instruction = &self.fields[0].tokens;
        if instruction.is_empty() {
            return;
        }
        let same = |&question: &u32| row.question(question).eq(instruction.iter().copied());
        let questions: Vec<u32> = row.index.short(gram(instruction)).filter(same).collect();
        let found = Found { share: 1.0, window: None };
        for question in questions {
            row.hits(self, question, Field::Instruction, found, Verdict::ShortQuestion, hits);
        }
    }

    fn long(&mut self, row: &mut Row<'_>, hits: &mut Vec<Hit>) {
        let mut best: Vec<(u32, Field, Found)> = Vec::new();
        for (number, field) in [(0, Field::Instruction), (1, Field::Response)] {
            let text = &mut self.fields[number];
            if !text.find_candidates(row.index, &mut self.unscored) {
                continue;
            }
            self.places.fill(&text.tokens);
            for place in 0..self.fields[number].candidates.len() {
                if self.fields[number].budget == 0 {
                    self.unscored += (self.fields[number].candidates.len() - place) as u64;
                    break;
                }
                let question = self.fields[number].candidates[place];
                if let Some(found) = self.share(row.index, question, number) {
                    best.push((question, field, found));
                }
            }
        }
        best.sort_by(|one, other| {
            (one.0.cmp(&other.0)).then(other.2.share.total_cmp(&one.2.share)).then(one.1.cmp(&other.1))
        });
        best.dedup_by_key(|one| one.0);
        for (question, field, found) in best {
            if row.shares_seed(question, &self.fields) {
                row.hits(self, question, field, found, Verdict::Question, hits);
            }
        }
    }

    /// The share of a question in a field, if it reaches the question's threshold.
    fn share(&mut self, index: Index<'_>, number: u32, field: usize) -> Option<Found> {
        let question = &mut self.question;
        question.read(index, number, &mut self.weights);
        let text = &mut self.fields[field];
        text.budget = text.budget.saturating_sub(question.grams.len());
        let least = threshold(question.tokens.len());
        let here = question.grams.iter().zip(&question.weights).filter(|&(&one, _)| self.places.first(one).is_some());
        let whole = here.map(|(_, weight)| weight).sum::<f64>() / question.total;
        if whole < least || whole.is_nan() {
            return None;
        }
        let length = question.tokens.len();
        if text.tokens.len() <= 4 * length + 200 {
            return Some(Found { share: whole, window: None });
        }
        self.windows(index, field, whole, least)
    }

    /// The best window of a long field. Only windows with a gram of the question's rare ones can reach its threshold.
    fn windows(&mut self, index: Index<'_>, field: usize, most: f64, least: f64) -> Option<Found> {
        let (question, text) = (&mut self.question, &mut self.fields[field]);
        let (step, width) = (question.tokens.len(), 2 * question.tokens.len() + 10);
        question.weigh(index);
        let rare = rarest(&mut question.weighed, step);
        self.windows.clear();
        'grams: for &(_, one, _) in &question.weighed[..rare] {
            for place in self.places.all(one) {
                let place = place as usize;
                // A window holds it whole: it begins at `place` at the latest, and ends after its last token.
                let first = (place + GRAM).saturating_sub(width).div_ceil(step);
                self.windows.extend(first as u32..=(place / step) as u32);
                text.budget = text.budget.saturating_sub(1);
                if text.budget == 0 {
                    self.unscored += 1;
                    break 'grams;
                }
            }
        }
        self.windows.sort_unstable();
        self.windows.dedup();
        question.number();
        let mut best: Option<Found> = None;
        for (stamp, &window) in (1..).zip(&self.windows) {
            if text.budget == 0 {
                self.unscored += 1;
                break;
            }
            let start = window as usize * step;
            let end = (start + width).min(text.tokens.len());
            text.budget = text.budget.saturating_sub(end - start);
            let share = question.share(&text.tokens[start..end], stamp);
            if share >= least && best.is_none_or(|best| share > best.share) {
                best = Some(Found { share, window: Some((start as u32, end as u32)) });
                if share >= most {
                    break;
                }
            }
        }
        best
    }
}

impl Question {
    fn read(&mut self, index: Index<'_>, number: u32, cache: &mut Vec<f64>) {
        let (from, to) = index.numbers(Part::QuestionTokens).range(number as usize);
        self.tokens.clear();
        self.tokens.extend(index.numbers(Part::Tokens).within(from, to));
        distinct_grams(&self.tokens, &mut self.grams, &mut self.seen);
        if cache.is_empty() {
            cache.extend((0..WEIGHTS as u32).map(|count| weight(index.questions, count)));
        }
        let weigh = |&one: &u64| {
            let count = index.count(one);
            cache.get(count as usize).copied().unwrap_or_else(|| weight(index.questions, count))
        };
        self.weights.clear();
        self.weights.extend(self.grams.iter().map(weigh));
        self.total = self.weights.iter().sum();
    }

    /// How many questions have each gram.
    fn weigh(&mut self, index: Index<'_>) {
        self.weighed.clear();
        let grams = self.grams.iter().zip(&self.weights);
        self.weighed.extend(grams.map(|(&one, &weight)| (index.count(one), one, weight)));
    }

    /// Prepare to score windows.
    fn number(&mut self) {
        self.places.clear();
        self.places.extend(self.grams.iter().copied().zip(0..));
        self.stamps.clear();
        self.stamps.resize(self.grams.len(), 0);
    }

    /// Its share in a window with a number of its own.
    fn share(&mut self, tokens: &[u32], stamp: u32) -> f64 {
        for one in tokens.windows(GRAM).map(gram) {
            if let Some(&place) = self.places.get(&one) {
                self.stamps[place as usize] = stamp;
            }
        }
        let here = self.weights.iter().zip(&self.stamps).filter(|&(_, &seen)| seen == stamp);
        here.map(|(weight, _)| weight).sum::<f64>() / self.total
    }
}

/// What is read of a row once an item is found in it.
struct Row<'a> {
    index: Index<'a>,
    texts: [&'a str; 2],
    /// Hashes of the numbers of both fields, sorted.
    numbers: [Option<Vec<u64>>; 2],
    seeds: Option<FxHashSet<u64>>,
    response: Response,
}

impl Row<'_> {
    fn question(&self, number: u32) -> impl ExactSizeIterator<Item = u32> + use<'_> {
        let (from, to) = self.index.numbers(Part::QuestionTokens).range(number as usize);
        self.index.numbers(Part::Tokens).within(from, to)
    }

    fn shares_seed(&mut self, question: u32, fields: &[Text; 2]) -> bool {
        let tokens: Vec<u32> = self.question(question).collect();
        let there = self.seeds.get_or_insert_with(|| fields.iter().flat_map(|field| seeds(&field.tokens)).collect());
        seeds(&tokens).any(|seed| there.contains(&seed))
    }

    /// Add the items of a question that was found.
    fn hits(
        &mut self,
        scorer: &mut Scorer,
        question: u32,
        field: Field,
        found: Found,
        without_answer: Verdict,
        hits: &mut Vec<Hit>,
    ) {
        let (from, to) = self.index.numbers(Part::QuestionItems).range(question as usize);
        for item in from..to.min(self.index.items() as u32) {
            let same_numbers = without_answer == Verdict::ShortQuestion || self.has_numbers(scorer, item, field);
            let answer = self.answer(&scorer.fields[1].tokens, item, field, found.window);
            let verdict = match (same_numbers, answer >= ANSWERED) {
                (false, _) => Verdict::Variant,
                (true, true) => Verdict::QuestionAnswer,
                (true, false) => without_answer,
            };
            hits.push(Hit { item, verdict, field, question: found.share, answer, window: found.window });
        }
    }

    /// Whether a field has all numbers of an item's question, as often.
    fn has_numbers(&mut self, scorer: &mut Scorer, item: u32, field: Field) -> bool {
        let there = self.numbers[field as usize].get_or_insert_with(|| {
            scorer.numbers.read(self.texts[field as usize]);
            let mut found: Vec<u64> = scorer.numbers.iter().map(|one| xxh3_64(one.as_bytes())).collect();
            found.sort_unstable();
            found
        });
        let (from, to) = self.index.numbers(Part::ItemNumbers).range(item as usize);
        let wanted = self.index.part(Part::Numbers);
        let mut rest = there.iter();
        (from..to).all(|place| {
            let wanted = read_u64(wanted, place as usize * 8);
            rest.by_ref().find(|&&number| number >= wanted) == Some(&wanted)
        })
    }

    /// The best share of an item's answers in the response.
    fn answer(&mut self, response: &[u32], item: u32, field: Field, window: Option<(u32, u32)>) -> f64 {
        let start = if field == Field::Response { window.map_or(0, |(start, _)| start) } else { 0 };
        let answers = self.index.numbers(Part::ItemAnswers).range(item as usize);
        let mut best = 0.0_f64;
        for number in answers.0..answers.1.min(self.index.part(Part::Letters).len() as u32) {
            let (from, to) = self.index.numbers(Part::AnswerTokens).range(number as usize);
            let answer: Vec<u32> = U32s::within(self.index.numbers(Part::Answers), from, to).collect();
            let letter = self.index.part(Part::Letters).get(number as usize) == Some(&1);
            best = best.max(self.answer_share(response, &answer, letter, start as usize, field));
        }
        best
    }

    fn answer_share(&mut self, response: &[u32], answer: &[u32], letter: bool, start: usize, field: Field) -> f64 {
        let region = response.get(start..).unwrap_or_default();
        if answer.is_empty() || region.is_empty() {
            return 0.0;
        }
        if letter {
            return f64::from(u8::from([region.first(), region.last()].contains(&answer.first())));
        }
        if answer.len() <= FEW {
            let there = if field == Field::Instruction && region.len() > BRIEF {
                let ends = [&region[..BEGIN], &region[region.len() - END..]];
                ends.iter().any(|end| end.windows(answer.len()).any(|block| block == answer))
            } else {
                let last = self.response.last(response, gram(answer), answer.len());
                last.is_some_and(|place| place as usize >= start)
            };
            return f64::from(u8::from(there));
        }
        let (mut grams, mut seen) = (Vec::new(), FxHashSet::default());
        distinct_grams(answer, &mut grams, &mut seen);
        let found = grams
            .iter()
            .filter(|&&one| self.response.last(response, one, GRAM).is_some_and(|place| place as usize >= start));
        found.count() as f64 / grams.len() as f64
    }
}
