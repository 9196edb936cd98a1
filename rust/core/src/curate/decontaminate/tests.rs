//! The parts of an index agree with what they were made of.

use rustc_hash::FxHashSet;

use super::build::Builder;
use super::index::{Damage, Index, Part};
use super::score::{Field, Scorer, Verdict};
use super::{SEED, gram, rarest, seeds, threshold};
use crate::curate::text::{Tokens, token_hash};

const QUESTION: &str = "a slow barge carries nine crates of pears along the canal while two mules pull it to the lock";

fn index_of(questions: &[String]) -> Vec<u8> {
    let mut builder = Builder::new(1 << 20);
    for (number, question) in questions.iter().enumerate() {
        assert!(builder.add("bench", &number.to_string(), question, ["the pears", "B"]).is_ok());
    }
    builder.finish().unwrap_or_default()
}

fn tokens_of(text: &str) -> Vec<u32> {
    let mut tokens = Tokens::new();
    tokens.read(text);
    tokens.iter().map(token_hash).collect()
}

#[test]
fn seeds_are_the_hashes_of_five_tokens() {
    let tokens: Vec<u32> = (0..20_u32).map(|number| number.wrapping_mul(2_654_435_761)).collect();
    for many in 0..tokens.len() {
        let one_by_one: Vec<u64> = tokens[..many].windows(SEED).map(gram).collect();
        assert_eq!(seeds(&tokens[..many]).collect::<Vec<_>>(), one_by_one, "{many} tokens");
    }
}

#[test]
fn thresholds_fall_from_twelve_tokens_to_thirty_two() {
    assert_eq!([5, 12, 22, 32, 500].map(threshold), [1.0, 1.0, 0.875, 0.75, 0.75]);
}

#[test]
fn what_is_left_without_the_rarest_grams_is_below_the_threshold() {
    for tokens in [5, 12, 13, 20, 32, 60] {
        let grams: Vec<_> =
            (0..tokens as u64 - 2).map(|one| (one as u32 % 7 + 1, one, 9.0 / (one % 7 + 1) as f64)).collect();
        let total: f64 = grams.iter().map(|one| one.2).sum();
        let mut sorted = grams.clone();
        let taken = rarest(&mut sorted, tokens);
        let rest = |from: usize| sorted[from..].iter().map(|one| one.2).sum::<f64>();
        assert!(taken > 0 && rest(taken) < threshold(tokens) * total, "{tokens} tokens");
        assert!(rest(taken - 1) >= threshold(tokens) * total * (1.0 - 1e-6), "{tokens} tokens: no more than needed");
    }
}

#[test]
fn every_gram_has_its_count_and_every_seed_passes_the_filter() {
    let questions: Vec<String> = (0..600).map(|number| format!("{QUESTION} by day {number}")).collect();
    let bytes = index_of(&questions);
    let Ok(index) = Index::checked(&bytes) else { unreachable!("it was just written") };
    assert_eq!((index.items(), index.questions, index.benchmarks()), (600, 600, vec!["bench"]));
    let filter = index.filter();
    for (number, question) in (0..).zip(&questions) {
        let tokens = tokens_of(question);
        assert!(seeds(&tokens).all(|seed| filter.may_have(seed)));
        let counts: Vec<u32> = tokens.windows(3).map(|one| index.count(gram(one))).collect();
        // The last gram has the number; the counts of the others do not fit a byte.
        assert_eq!(counts.split_last(), Some((&1, vec![600; tokens.len() - 3].as_slice())));
        let rare: FxHashSet<u32> = tokens.windows(3).flat_map(|one| index.rare(gram(one))).collect();
        assert!(rare.contains(&number));
        assert_eq!(index.item(number), (0, number.to_string().as_str()));
    }
    assert_eq!(index.count(12_345), 0);
    let other: Vec<u32> = (0..100_000).collect();
    let passed = seeds(&other).filter(|&seed| filter.may_have(seed)).count();
    assert!(passed < 1_000, "{passed} of 100,000 other seeds pass the filter");
}

#[test]
fn a_row_has_the_items_of_its_question() {
    let bytes = index_of(&[QUESTION.to_owned(), "Why not?".to_owned(), QUESTION.to_uppercase()]);
    let Ok(index) = Index::checked(&bytes) else { unreachable!("it was just written") };
    let (mut scorer, mut hits) = (Scorer::default(), Vec::new());
    scorer.row(index, QUESTION, "The answer is B", &mut hits);
    let found: Vec<_> = hits.iter().map(|hit| (index.item(hit.item).1, hit.verdict, hit.field)).collect();
    let wanted = |name| (name, Verdict::QuestionAnswer, Field::Instruction);
    assert_eq!(found, [wanted("0"), wanted("2")]);
    scorer.row(index, "why NOT", "", &mut hits);
    assert_eq!(hits.iter().map(|hit| hit.verdict).collect::<Vec<_>>(), [Verdict::ShortQuestion]);
    scorer.row(index, "Something else.", "B", &mut hits);
    assert!(hits.is_empty());
}

#[test]
fn other_bytes_are_refused() {
    let bytes = index_of(&[QUESTION.to_owned()]);
    assert_eq!(Index::checked(b"something else").err(), Some(Damage::Magic));
    assert_eq!(Index::checked(&bytes[..bytes.len() - 1]).err(), Some(Damage::Bytes("its length differs")));
    let mut other = bytes.clone();
    let last = other.len() - 1;
    other[last] ^= 1;
    assert_eq!(Index::checked(&other).err(), Some(Damage::Bytes("its checksum differs")));
    assert!(Index::new(&bytes).is_ok_and(|index| !index.part(Part::Filter).is_empty()));
}

#[test]
fn an_index_has_its_limit() {
    let mut builder = Builder::new(2_000);
    let refused = (0..100).find_map(|number| builder.add("b", "n", &format!("{QUESTION} {number}"), []).err());
    assert!(refused.is_some_and(|error| error.bytes > 2_000 && error.most == 2_000 && error.items > 1));
}
