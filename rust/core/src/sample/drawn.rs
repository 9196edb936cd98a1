//! What is drawn of a task: the rows that epochs take, each once, and what is counted of them.

use super::eligible::{Counts, Kept, Limits};
use super::numbers::Numbers;
use super::source::{Buffers, Chunk, Source, Unfit};
use super::walk::{Taken, Walk, Walker};

/// Where the rows of a task come from.
#[derive(Clone, Debug)]
pub enum Rows {
    /// From its files, filtered.
    Files(Source, Limits),
    /// From whoever filtered them, or split long ones.
    Given(Eligible),
}

/// Rows that may be sampled.
#[derive(Clone, Debug, Default)]
pub struct Eligible {
    /// The columns, in the order of [`super::source::COLUMNS`]; of bytes −1 where they are not known.
    pub columns: Vec<Numbers>,
    /// The places of rows that lost tokens, ascending, and how many.
    pub cut: Vec<(u32, u64)>,
    /// The number of the task's row that each is, or is a piece of, ascending; empty = each is the row of its place.
    pub origins: Vec<u32>,
    /// How often each was seen before, 255 = as often or more; empty = never. Those that were seen less are drawn first,
    /// until all were seen as often.
    pub passes: Vec<u8>,
    /// How often the first epochs take each, whatever the walks say of them, and how many epochs these are; empty = as the
    /// walks say. Which of these epochs takes a row is not known.
    pub kept: (usize, Vec<u8>),
}

/// A task to draw.
#[derive(Clone, Debug)]
pub struct Task {
    /// Its rows.
    pub rows: Rows,
    /// The walks through them.
    pub walks: Vec<Walk>,
}

/// Sums over the rows of a task. Those that may be sampled: `rows`, `inst`, `resp`; those that are drawn, as often as
/// they are: `drawn_*`; once: `unique_*`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Sums {
    pub rows: u64,
    pub inst: u64,
    pub resp: u64,
    pub drawn_rows: u64,
    pub drawn_inst: u64,
    pub drawn_resp: u64,
    pub unique_rows: u64,
    pub unique_tokens: u64,
    pub cut_rows: u64,
    pub cut_tokens: u64,
    /// Rows of the task that may be sampled, whatever their pieces, and those that are drawn.
    pub whole_rows: u64,
    pub whole_drawn: u64,
    /// The sum of the squares of the lengths of rows that may be sampled; what is too large is the largest number.
    pub squares: u64,
}

/// What was drawn of a walk.
#[derive(Clone, Debug)]
pub struct Walked {
    /// Rows that it walks through, and tokens of their responses.
    pub pool: (u64, u64),
    /// Tokens of the responses that each epoch draws.
    pub drawn: Vec<u64>,
}

/// What was drawn of a task.
#[derive(Debug)]
pub struct Drawn {
    /// Rows and tokens of the task, by its files.
    pub size: (u64, u64),
    /// What became of rows that may not be sampled.
    pub counts: Counts,
    /// Sums.
    pub sums: Sums,
    /// The columns of the rows that are drawn.
    pub columns: Vec<Numbers>,
    /// What each epoch takes, as places in these columns.
    pub epochs: Vec<Taken>,
    /// By walk.
    pub walks: Vec<Walked>,
}

/// Counts of sizes by powers of two: of size s in (2^(k−1), 2^k] for each k.
pub type Histogram = [u64; 64];

/// The place of a size in a [`Histogram`].
#[must_use]
pub fn power(size: u64) -> usize {
    size.checked_sub(1).map_or(0, |before| (64 - before.leading_zeros()) as usize)
}

/// What threads of a planner share: the seed as text, the number of epochs.
#[derive(Clone, Debug)]
pub struct Draws {
    /// The seed.
    pub seed: String,
    /// The number of epochs.
    pub epochs: usize,
}

impl Draws {
    /// Draw the rows of all epochs.
    ///
    /// # Errors
    /// The task's files cannot be read here.
    pub fn draw(
        &self,
        task: &Task,
        buffers: &mut Buffers,
        lengths: &mut Histogram,
        cuts: &mut Histogram,
    ) -> Result<Drawn, Unfit> {
        let mut counts = Counts::default();
        let (rows, size) = match &task.rows {
            Rows::Given(rows) => (rows.clone(), (0, 0)),
            Rows::Files(source, limits) => {
                let numbered = task.walks.iter().any(|walk| walk.members.is_some());
                read(source, limits, buffers, &mut counts, numbered)?
            }
        };
        let count = rows.columns[1].len();
        let (first, kept) = (rows.kept.0, &rows.kept.1);
        let fits = |counts: &[u8]| counts.is_empty() || counts.len() == count;
        if u32::try_from(count).is_err() || !fits(&rows.passes) || !fits(kept) || first > self.epochs {
            return Err(Unfit);
        }
        let responses = &rows.columns[3];
        let (mut epochs, mut walks) = (vec![Taken::default(); self.epochs], Vec::new());
        for walk in &task.walks {
            let members = walk.members.as_ref().map(|members| places_of(members, &rows.origins, count));
            let mut walker = Walker::new(&self.seed, walk, members.as_deref(), responses, &rows.passes);
            let drawn = epochs.iter_mut().enumerate().map(|(number, taken)| {
                let (whole, before) = (taken.whole, taken.rows.len());
                walker.epoch(number, responses, taken);
                let more = taken.rows[before..].iter().map(|&row| responses.get(row as usize) as u64).sum::<u64>();
                u64::from(taken.whole - whole) * walker.pool().1 + more
            });
            let mut drawn = drawn.collect::<Vec<_>>();
            if !kept.is_empty() {
                let tokens = |row: usize| u64::from(kept[row]) * responses.get(row) as u64;
                drawn[0] += members.as_ref().map_or_else(
                    || (0..count).map(tokens).sum::<u64>(),
                    |members| members.iter().map(|&row| tokens(row as usize)).sum(),
                );
            }
            walks.push(Walked { pool: walker.pool(), drawn });
        }
        for (row, &times) in (0..).zip(kept) {
            (0..usize::from(times)).for_each(|time| epochs[time % first].rows.push(row));
        }
        let whole = epochs.iter().map(|taken| taken.whole).sum::<u32>();
        let mut times = Vec::new();
        if whole == 0 || epochs.iter().any(|taken| !taken.rows.is_empty()) {
            times.resize(count, whole);
            for taken in &epochs {
                taken.rows.iter().for_each(|&row| times[row as usize] += 1);
            }
        }
        let often = |row: usize| u64::from(times.get(row).copied().unwrap_or(whole));
        let sums = summed(&rows, often, lengths, cuts);
        let mut columns = rows.columns;
        if whole == 0 {
            let taken: Vec<u32> = (0..count as u32).filter(|&row| times[row as usize] > 0).collect();
            if taken.len() < count {
                columns.iter_mut().for_each(|values| values.select(&taken));
                // Each row's rank among those that are taken replaces its count.
                for (rank, &row) in (0..).zip(&taken) {
                    times[row as usize] = rank;
                }
                for row in epochs.iter_mut().flat_map(|taken| &mut taken.rows) {
                    *row = times[*row as usize];
                }
            }
        }
        Ok(Drawn { size, counts, sums, columns, epochs, walks })
    }
}

fn read(
    source: &Source,
    limits: &Limits,
    buffers: &mut Buffers,
    counts: &mut Counts,
    numbered: bool,
) -> Result<(Eligible, (u64, u64)), Unfit> {
    let mut rows = Eligible::default();
    let mut kept = Kept::default();
    let begin = |rows: &mut Eligible, chunk: &Chunk<'_>| {
        if rows.columns.is_empty() {
            let most = (0..chunk.columns.len()).map(|number| if number < 4 { chunk.tokens } else { u64::MAX });
            rows.columns = most.map(|most| Numbers::with_capacity(most, chunk.rows as usize)).collect();
        }
    };
    let size = source.read(buffers, |chunk| {
        begin(&mut rows, &chunk);
        limits.keep(&chunk, counts, &mut kept);
        let before = rows.columns[1].len() as u32;
        for (number, (values, column)) in rows.columns.iter_mut().zip(chunk.columns).enumerate() {
            if number == 3 {
                values.extend(kept.responses.iter().map(|&value| value as i64));
            } else if kept.rows.len() == column.len() {
                values.extend(column.iter().map(|&value| value as i64));
            } else {
                values.extend(kept.rows.iter().map(|&row| column[row as usize] as i64));
            }
        }
        if let Some(Numbers::Wide(bytes)) = rows.columns.get_mut(4) {
            kept.cut.iter().for_each(|&(place, _)| bytes[(before + place) as usize] = -1);
        }
        rows.cut.extend(kept.cut.iter().map(|&(place, lost)| (before + place, lost)));
        if numbered {
            rows.origins.extend(kept.rows.iter().map(|&row| chunk.first as u32 + row));
        }
    })?;
    rows.columns.resize(source.digests.len(), Numbers::default());
    Ok((rows, size))
}

/// The places of rows whose number in the task is among `members`; all ascend.
fn places_of(members: &[u32], origins: &[u32], count: usize) -> Vec<u32> {
    if origins.is_empty() {
        return members.iter().copied().filter(|&row| (row as usize) < count).collect();
    }
    let mut members = members.iter().peekable();
    let mut places = Vec::with_capacity(members.len());
    for (place, origin) in (0..).zip(origins) {
        while members.next_if(|&number| number < origin).is_some() {}
        if members.peek() == Some(&origin) {
            places.push(place);
        }
    }
    places
}

fn summed(rows: &Eligible, often: impl Fn(usize) -> u64, lengths: &mut Histogram, cuts: &mut Histogram) -> Sums {
    let mut sums = Sums::default();
    let (inst, resp) = (&rows.columns[1], &rows.columns[3]);
    let (mut last, mut last_drawn) = (None, None);
    for row in 0..inst.len() {
        let (inst, resp, times) = (inst.get(row) as u64, resp.get(row) as u64, often(row));
        let origin = rows.origins.get(row).map_or(row as u64, |&origin| origin.into());
        sums.rows += 1;
        sums.inst += inst;
        sums.resp += resp;
        sums.squares = sums.squares.saturating_add((inst + resp).saturating_pow(2));
        sums.whole_rows += u64::from(last != Some(origin));
        last = Some(origin);
        if times > 0 {
            sums.drawn_rows += times;
            sums.drawn_inst += inst * times;
            sums.drawn_resp += resp * times;
            sums.unique_rows += 1;
            sums.unique_tokens += inst + resp;
            sums.whole_drawn += u64::from(last_drawn != Some(origin));
            last_drawn = Some(origin);
            lengths[power(inst + resp)] += times;
        }
    }
    for &(_, lost) in rows.cut.iter().filter(|(place, _)| often(*place as usize) > 0) {
        sums.cut_rows += 1;
        sums.cut_tokens += lost;
        cuts[power(lost)] += 1;
    }
    sums
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::walk::Want;
    use super::*;

    fn given(responses: &[i32]) -> Eligible {
        let count = responses.len() as i32;
        let columns = [(0..count).collect(), vec![2; responses.len()], (0..count).collect(), responses.to_vec()];
        Eligible { columns: columns.into_iter().map(Numbers::Narrow).collect(), ..Eligible::default() }
    }

    fn draw(rows: Eligible, walks: Vec<Walk>, epochs: usize) -> Drawn {
        let draws = Draws { seed: "1".to_owned(), epochs };
        let task = Task { rows: Rows::Given(rows), walks };
        draws.draw(&task, &mut Buffers::default(), &mut [0; 64], &mut [0; 64]).unwrap()
    }

    fn walk(want: Want) -> Walk {
        Walk { stream: "t".to_owned(), members: None, want, most: None, earlier: Vec::new() }
    }

    #[test]
    fn each_row_comes_once_before_any_comes_again() {
        for (count, cap, repeat, epochs) in [(10, 3, 1, 11), (7, 9, 3, 4), (5, 4, 2, 6), (1, 5, 3, 3), (100, 100, 1, 3)]
        {
            let want = Want::Rule { cap: Some(cap), repeat, budget: None };
            let made = draw(given(&vec![3; count]), vec![walk(want)], epochs);
            let mut times = vec![0_u64; count];
            for taken in &made.epochs {
                let rows = taken.rows.len() as u64 + u64::from(taken.whole) * count as u64;
                assert_eq!(rows, cap.min(count as u64) * repeat);
                taken.rows.iter().for_each(|&row| times[row as usize] += 1);
                times.iter_mut().for_each(|count| *count += u64::from(taken.whole));
            }
            assert!(times.iter().max().unwrap() - times.iter().min().unwrap() <= 1, "{times:?}");
            assert_eq!(made.sums.drawn_rows, times.iter().sum::<u64>());
        }
    }

    #[test]
    fn a_walk_goes_on_under_another_rule() {
        let rule = |cap| Want::Rule { cap: Some(cap), repeat: 1, budget: None };
        let before = draw(given(&[3; 20]), vec![walk(rule(6))], 2);
        let earlier = vec![(1, Want::Rows(vec![6]), None), (2, rule(6), None)];
        let after = draw(given(&[3; 20]), vec![Walk { earlier, ..walk(rule(4)) }], 4);
        let rows = |made: &Drawn, number: usize| -> Vec<i64> {
            made.epochs[number].rows.iter().map(|&row| made.columns[0].get(row as usize)).collect()
        };
        assert_eq!((rows(&after, 0), rows(&after, 1)), (rows(&before, 0), rows(&before, 1)));
        let mut all: Vec<i64> = (0..4).flat_map(|number| rows(&after, number)).collect();
        all.sort_unstable();
        assert_eq!(all, (0..20).collect::<Vec<_>>());
    }

    #[test]
    fn a_budget_is_reached_and_not_passed() {
        for budget in [0, 1, 9, 10, 11, 29, 30, 31, 59, 60, 61, 100] {
            let want = Want::Rule { cap: None, repeat: 2, budget: Some(budget) };
            let made = draw(given(&[1, 2, 3, 4, 5, 6, 9]), vec![walk(want)], 1);
            let spent = made.walks[0].drawn[0];
            assert_eq!(spent, made.sums.drawn_resp);
            assert!(spent >= (2 * budget).min(60) && (spent < 2 * budget + 9 || spent == 60), "{budget}: {spent}");
            assert!(budget > 0 || spent == 0);
        }
    }

    #[test]
    fn members_are_walked_through_apart_and_rows_that_are_drawn_are_kept() {
        let mut rows = given(&[1, 2, 3, 4, 5, 6]);
        rows.origins = vec![1, 3, 3, 4, 8, 9];
        rows.cut = vec![(1, 7), (5, 9)];
        let part = |stream: &str, members: &[u32], rows: &[u64]| Walk {
            stream: stream.to_owned(),
            members: Some(members.to_vec()),
            want: Want::Rows(rows.to_vec()),
            earlier: Vec::new(),
            most: None,
        };
        let made = draw(rows, vec![part("a", &[0, 3, 8], &[3, 1]), part("b", &[2, 9], &[0])], 3);
        assert_eq!(made.walks.iter().map(|walk| walk.pool).collect::<Vec<_>>(), [(3, 10), (1, 6)]);
        assert_eq!(made.epochs.iter().map(|taken| taken.rows.len()).collect::<Vec<_>>(), [3, 1, 0]);
        assert!(matches!(&made.columns[3], Numbers::Narrow(values) if values == &[2, 3, 5]));
        let mut first = made.epochs[0].rows.clone();
        first.sort_unstable();
        assert_eq!(first, [0, 1, 2]);
        let sums = made.sums;
        assert_eq!((sums.unique_rows, sums.whole_rows, sums.whole_drawn), (3, 5, 2));
        assert_eq!((sums.cut_rows, sums.cut_tokens), (1, 7));
    }

    #[test]
    fn rows_that_epochs_keep_are_in_them_whatever_the_walks_take_after_them() {
        let (mut rows, kept) = (given(&[1, 2, 3, 4, 5, 6]), [2_u8, 0, 1, 3, 0, 0]);
        rows.passes = kept.to_vec();
        rows.kept = (2, kept.to_vec());
        let earlier = vec![(2, Want::Rows(Vec::new()), None)];
        for cap in 1..6 {
            let want = Want::Rule { cap: Some(cap), repeat: 1, budget: None };
            let made = draw(rows.clone(), vec![Walk { earlier: earlier.clone(), ..walk(want) }], 3);
            let row = |&place: &u32| made.columns[0].get(place as usize) as usize;
            let mut times = [0; 6];
            made.epochs[..2].iter().flat_map(|taken| &taken.rows).for_each(|place| times[row(place)] += 1);
            assert_eq!(times, kept);
            assert_eq!(made.epochs[2].rows.len() as u64, cap);
            assert!(made.epochs[2].rows.iter().all(|place| kept[row(place)] <= u8::from(cap > 3)));
            assert_eq!((made.walks[0].drawn[0], made.walks[0].drawn[1]), (17, 0));
            assert_eq!(made.walks[0].drawn.iter().sum::<u64>(), made.sums.drawn_resp);
        }
        rows.kept.0 = 4;
        let task = Task { rows: Rows::Given(rows), walks: Vec::new() };
        let draws = Draws { seed: "1".to_owned(), epochs: 3 };
        assert!(draws.draw(&task, &mut Buffers::default(), &mut [0; 64], &mut [0; 64]).is_err());
    }

    #[test]
    fn rows_that_were_seen_less_come_first_and_none_more_often_than_it_may() {
        let before = [0_u8, 3, 1, 0, 2, 3, 0, 1];
        for most in [None, Some(0), Some(2), Some(4)] {
            for (cap, budget) in [(Some(3), None), (None, Some(7)), (None, None)] {
                let want = Want::Rule { cap, repeat: 1, budget };
                let walk = Walk { most, ..walk(want) };
                let mut rows = given(&[3; 8]);
                rows.passes = before.to_vec();
                for epochs in 1..9 {
                    let made = draw(rows.clone(), vec![walk.clone()], epochs);
                    let kept: Vec<usize> =
                        (0..made.columns[0].len()).map(|at| made.columns[0].get(at) as usize).collect();
                    let mut times = before.map(u64::from);
                    for taken in &made.epochs {
                        taken.rows.iter().for_each(|&row| times[kept[row as usize]] += 1);
                        times.iter_mut().for_each(|count| *count += u64::from(taken.whole));
                    }
                    let seen: Vec<u64> =
                        (0..8).filter(|&row| times[row] > before[row].into()).map(|row| times[row]).collect();
                    let (least, largest) = (times.iter().min().unwrap(), seen.iter().max().unwrap_or(&0));
                    assert!(*largest <= least + 1 || seen.is_empty(), "{times:?}");
                    assert!(most.is_none_or(|most| seen.iter().all(|&count| count <= most.into())), "{times:?}");
                    let drawn: u64 =
                        times.iter().sum::<u64>() - before.iter().map(|&count| u64::from(count)).sum::<u64>();
                    assert_eq!(drawn, made.sums.drawn_rows);
                    let room: u64 =
                        before.iter().map(|&count| u64::from(most.unwrap_or(99)).saturating_sub(count.into())).sum();
                    let each = if budget.is_some() { 3 } else { cap.unwrap_or(8) };
                    assert_eq!(drawn, room.min(each * epochs as u64));
                }
            }
        }
    }

    #[test]
    fn sizes_are_counted_by_powers() {
        let sizes = [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (9, 4)];
        sizes.into_iter().for_each(|(size, place)| assert_eq!(power(size), place, "{size}"));
    }
}
