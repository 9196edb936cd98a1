//! Which rows are removed: greedily, in rank order.

use super::sketch::{Malformed, Sketch};
use super::verify::{Row, Rule, decide};
use super::{Alive, Settings};

/// What was found of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finding {
    /// The row. It is removed, unless the rule is `Contained`.
    pub row: u32,
    /// The first retained row that it is a duplicate or a part of.
    pub other: u32,
    /// The rule that was passed, or `Contained`.
    pub rule: Rule,
    /// The score of the instructions.
    pub instruction: f64,
    /// The score of the responses.
    pub response: f64,
}

/// What was found of all rows.
#[derive(Debug, Default, PartialEq)]
pub struct Resolved {
    /// Sorted by row, then by rank of the other row.
    pub findings: Vec<Finding>,
    /// How often two rows were compared.
    pub verifications: u64,
}

/// Decide about rows that edges join: a row is removed if as many retained rows as `settings.keep` are duplicates of it.
///
/// With `settings.follow`, an edge to a removed row is one to the row that stands for it: what resembles the one mostly
/// resembles the other, and of a family with very many copies only some edges are there.
///
/// `order` has all rows by rank; `fixed` rows are never removed, and two of them are never compared. All indices are below
/// the number of rows, which the caller checks.
///
/// # Errors
/// A row is not a sketch.
pub fn resolve(
    rows: &[&[u8]],
    order: &[u32],
    fixed: &[bool],
    edges: &[(u32, u32)],
    settings: &Settings,
    alive: Alive<'_>,
) -> Result<Resolved, Malformed> {
    let mut ranks = vec![0_u32; rows.len()];
    for (rank, &row) in (0..).zip(order) {
        ranks[row as usize] = rank;
    }
    let by_rank = |rank: u32| order[rank as usize];
    let mut pairs: Vec<(u32, u32, u32)> = edges
        .iter()
        .map(|&(a, b)| (ranks[a as usize], ranks[b as usize]))
        .map(|(a, b)| (0, a.max(b), a.min(b)))
        .filter(|&(_, later, earlier)| later != earlier && !fixed[by_rank(later) as usize])
        .collect();
    // Rows that no edges join do not matter to each other. One component after another, few rows are held at once.
    let mut roots: Vec<u32> = (0..).take(rows.len()).collect();
    for &(_, later, earlier) in &pairs {
        let (a, b) = (root(&mut roots, later), root(&mut roots, earlier));
        roots[a.max(b) as usize] = a.min(b);
    }
    for (component, later, _) in &mut pairs {
        *component = root(&mut roots, *later);
    }
    pairs.sort_unstable();
    pairs.dedup();
    // A row is kept in memory from its first comparison to its last one.
    let mut last_used = vec![0_usize; rows.len()];
    for (place, &(_, _, earlier)) in pairs.iter().enumerate() {
        last_used[earlier as usize] = place;
    }

    let mut held: Vec<Option<Box<Row<'_>>>> = (0..rows.len()).map(|_| None).collect();
    // Of a removed row the rank of the retained one that it is a duplicate of.
    let mut stand_in: Vec<Option<u32>> = vec![None; rows.len()];
    let mut found = Resolved::default();
    let mut parts: Vec<Finding> = Vec::new();
    let mut others: Vec<u32> = Vec::new();
    let mut place = 0;
    for group in pairs.chunk_by(|left, right| left.1 == right.1) {
        let Some(&(_, later, _)) = group.first() else { continue };
        let row = by_rank(later);
        let mine = Row::new(Sketch::read(rows[row as usize])?);
        others.clear();
        others.extend(group.iter().filter_map(|&(_, _, earlier)| match stand_in[earlier as usize] {
            None => Some(earlier),
            instead => instead.filter(|_| settings.follow),
        }));
        others.sort_unstable();
        others.dedup();
        parts.clear();
        let mut first = None;
        let mut duplicates = 0;
        for &earlier in &others {
            if !alive() {
                return Ok(Resolved::default());
            }
            let other = by_rank(earlier);
            let theirs = match &mut held[earlier as usize] {
                Some(theirs) => theirs,
                slot => slot.insert(Box::new(Row::new(Sketch::read(rows[other as usize])?))),
            };
            found.verifications += 1;
            let verdict = decide(&mine, theirs, settings);
            let finding = |row, other| Finding {
                row,
                other,
                rule: verdict.rule,
                instruction: verdict.instruction,
                response: verdict.response,
            };
            if verdict.duplicate {
                duplicates += 1;
                let (evidence, rank) = *first.get_or_insert_with(|| (finding(row, other), earlier));
                if duplicates >= settings.keep {
                    stand_in[later as usize] = Some(rank);
                    found.findings.push(evidence);
                    break;
                }
            } else if verdict.rule == Rule::Contained {
                let smaller = mine.size() <= theirs.size();
                let (part, whole) = if smaller { (row, other) } else { (other, row) };
                if !fixed[part as usize] {
                    parts.push(finding(part, whole));
                }
            }
        }
        place += group.len();
        for &earlier in &others {
            if last_used[earlier as usize] < place {
                held[earlier as usize] = None;
            }
        }
        if stand_in[later as usize].is_none() {
            found.findings.append(&mut parts);
            held[later as usize] = (last_used[later as usize] >= place).then(|| Box::new(mine));
        }
    }
    found.findings.sort_by_key(|finding| (finding.row, ranks[finding.other as usize]));
    Ok(found)
}

/// The smallest member of a set, as far as it is known; the way to it becomes shorter.
fn root(roots: &mut [u32], mut member: u32) -> u32 {
    while roots[member as usize] != member {
        let next = roots[roots[member as usize] as usize];
        roots[member as usize] = next;
        member = next;
    }
    member
}

#[cfg(test)]
mod tests {
    use super::super::refine::Refiner;
    use super::super::sketch::Maker;
    use super::*;

    fn made(rows: &[(String, String)]) -> Vec<Vec<u8>> {
        let sketch = |(instruction, response): &(String, String)| {
            let mut bytes = Vec::new();
            Maker::default().push(instruction, response, &Settings::default(), &mut bytes);
            bytes
        };
        rows.iter().map(sketch).collect()
    }

    fn text(seed: u64, words: u64) -> Vec<String> {
        (0..words)
            .map(|word| format!("w{:x}", super::super::grams::mix(seed, word) & !0xF0F0))
            .map(|word| word.replace(char::is_numeric, "z"))
            .collect()
    }

    /// A row, then edits of it, each with one more of its blocks of words replaced.
    fn edits(count: u64) -> Vec<(String, String)> {
        let answer = text(1, 60).join(" ");
        let row = |edits: u64| {
            let mut words = text(2, 60);
            (0..edits).for_each(|edit| {
                words[(edit * 7) as usize] = format!("edited{}", ["x", "y", "z", "u", "v", "w"][edit as usize])
            });
            (words.join(" "), answer.clone())
        };
        (0..count).map(row).collect()
    }

    fn run(rows: &[(String, String)], order: &[u32], fixed: &[bool]) -> Vec<(u32, u32)> {
        let sketches = made(rows);
        let bytes: Vec<&[u8]> = sketches.iter().map(Vec::as_slice).collect();
        let all: Vec<(u32, u32)> =
            (0..rows.len() as u32).flat_map(|a| (0..rows.len() as u32).map(move |b| (a, b))).collect();
        let found = resolve(&bytes, order, fixed, &all, &Settings::default(), &mut || true).unwrap();
        found.findings.iter().map(|finding| (finding.row, finding.other)).collect()
    }

    #[test]
    fn a_removed_row_resembles_the_kept_row_and_there_are_no_chains() {
        // Each edit but the first spoils three of 58 grams: six are too many.
        let rows = edits(7);
        let forwards = run(&rows, &[0, 1, 2, 3, 4, 5, 6], &[false; 7]);
        assert_eq!(forwards, [(1, 0), (2, 0), (3, 0), (4, 0), (5, 0)]);
        let last_first = run(&rows, &[6, 0, 1, 2, 3, 4, 5], &[false; 7]);
        assert_eq!(last_first, [(1, 0), (2, 6), (3, 6), (4, 6), (5, 6)]);
        let fixed = [true, true, false, false, false, false, true];
        assert_eq!(run(&rows, &[0, 1, 2, 3, 4, 5, 6], &fixed), [(2, 0), (3, 0), (4, 0), (5, 0)]);
        assert_eq!(run(&[], &[], &[]), []);
    }

    #[test]
    fn an_edge_to_a_removed_row_leads_to_the_row_that_stands_for_it() {
        let sketches = made(&edits(7));
        let bytes: Vec<&[u8]> = sketches.iter().map(Vec::as_slice).collect();
        let order: Vec<u32> = (0..7).collect();
        let chain: Vec<(u32, u32)> = (1..7).map(|row| (row - 1, row)).collect();
        let removed = |follow| {
            let settings = Settings { follow, ..Settings::default() };
            let found = resolve(&bytes, &order, &[false; 7], &chain, &settings, &mut || true).unwrap();
            let rows: Vec<(u32, u32)> = found.findings.iter().map(|finding| (finding.row, finding.other)).collect();
            (rows, found.verifications)
        };
        // The last one is like the row before it alone, which is gone.
        assert_eq!(removed(true), (vec![(1, 0), (2, 0), (3, 0), (4, 0), (5, 0)], 6));
        assert_eq!(removed(false), (vec![(1, 0), (3, 2), (5, 4)], 3));
    }

    #[test]
    fn a_cap_keeps_so_many_rows_that_are_alike() {
        let copies: Vec<(String, String)> = (0..60).map(|_| edits(1)[0].clone()).collect();
        let rows = made(&copies);
        let members: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
        for keep in [1, 2, 20, 59, 60] {
            let settings = Settings { keep, ..Settings::default() };
            let edges = Refiner::new(&settings).refine(&members, &mut || true).unwrap().edges;
            let order: Vec<u32> = (0..60).collect();
            let found = resolve(&members, &order, &[false; 60], &edges, &settings, &mut || true).unwrap();
            let removed: Vec<(u32, u32)> = found.findings.iter().map(|finding| (finding.row, finding.other)).collect();
            assert_eq!(removed, (keep as u32..60).map(|row| (row, 0)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_family_is_refined_to_the_rows_that_share_what_few_have() {
        let shared = text(3, 40).join(" ");
        let row = |seed: u64| (format!("{shared} {}", text(seed, 12).join(" ")), "yes".to_owned());
        let mut rows: Vec<(String, String)> = (10..1010).map(row).collect();
        rows.push((format!("please help me {}", rows[17].0), "yes".to_owned()));
        let sketches = made(&rows);
        let members: Vec<&[u8]> = sketches.iter().map(Vec::as_slice).collect();
        let refined = Refiner::new(&Settings::default()).refine(&members, &mut || true).unwrap();
        assert!(refined.edges.contains(&(17, 1000)));
        assert!(refined.edges.len() < 50, "{}", refined.edges.len());
        assert_eq!(refined.unverified, 0);
        assert!(Refiner::new(&Settings::default()).refine(&[b"no sketch"], &mut || true).is_err());
    }
}
