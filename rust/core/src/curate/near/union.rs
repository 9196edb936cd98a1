//! Connected components: numbers of rows as places in a set, and sets that are joined.

use crate::simd::{Level, Work, run};

/// Add numbers to a set of one bit each.
///
/// # Errors
/// A number that the set has no bit for.
pub fn mark(words: &mut [u64], numbers: &[i64]) -> Result<(), i64> {
    for &number in numbers {
        *word(number).and_then(|word| words.get_mut(word)).ok_or(number)? |= 1 << (number & 63);
    }
    Ok(())
}

/// How many numbers of the set are smaller than each number; `before` says it for the first number of each word.
///
/// # Errors
/// A number that the set has no bit for.
pub fn places(words: &[u64], before: &[i64], numbers: &[i64]) -> Result<Vec<i64>, i64> {
    run(Level::best(), Places { words, before, numbers })
}

struct Places<'a> {
    words: &'a [u64],
    before: &'a [i64],
    numbers: &'a [i64],
}

impl Work for Places<'_> {
    type Output = Result<Vec<i64>, i64>;

    /// With an instruction that counts bits, if the processor has it.
    #[inline(always)]
    fn run(self) -> Self::Output {
        let mut found = Vec::with_capacity(self.numbers.len());
        for &number in self.numbers {
            let at = word(number).filter(|&at| at < self.words.len() && at < self.before.len()).ok_or(number)?;
            let below = self.words[at] & ((1 << (number & 63)) - 1);
            found.push(self.before[at] + i64::from(below.count_ones()));
        }
        Ok(found)
    }
}

fn word(number: i64) -> Option<usize> {
    usize::try_from(number >> 6).ok()
}

/// Join the sets of the members of each pair (a[i], b[i]). A member's parent is not larger than it, so that the root of a
/// set is its smallest member.
///
/// # Errors
/// A member that there is not; nothing is joined then.
pub fn join(parents: &mut [u32], a: &[i64], b: &[i64]) -> Result<(), i64> {
    let unknown = |member: &&i64| usize::try_from(**member).map_or(true, |member| member >= parents.len());
    if let Some(&member) = a.iter().chain(b).find(unknown) {
        return Err(member);
    }
    for (&a, &b) in a.iter().zip(b) {
        let (a, b) = (a as usize, b as usize);
        // Most edges come more than once.
        if parents[a] != parents[b] {
            let (a, b) = (root(parents, a), root(parents, b));
            parents[a.max(b)] = a.min(b) as u32;
        }
    }
    Ok(())
}

/// The smallest member of a set, as far as it is known; the way to it becomes shorter.
///
/// A parent that is not smaller is never followed, so this ends whatever the parents are.
fn root(parents: &mut [u32], mut member: usize) -> usize {
    loop {
        let parent = parents[member] as usize;
        if parent >= member {
            return member;
        }
        let next = parent.min(parents[parent] as usize);
        parents[member] = next as u32;
        member = next;
    }
}

/// Places of values among names, which ascend.
///
/// # Errors
/// A value that is not among them.
pub fn find(names: &[u64], values: &[u64]) -> Result<Vec<u32>, u64> {
    let Some(&last) = names.last() else { return values.first().map_or(Ok(Vec::new()), |&value| Err(value)) };
    // About as many places of the directory as there are names: it says where those with the same upper bits begin.
    let bits = names.len().ilog2();
    let shift = (64 - last.leading_zeros()).saturating_sub(bits).min(63);
    let mut starts = vec![0_u32; (last >> shift) as usize + 2];
    for &name in names {
        *starts.get_mut((name >> shift) as usize + 1).ok_or(name)? += 1;
    }
    let mut before = 0;
    for start in &mut starts {
        before += *start;
        *start = before;
    }
    values
        .iter()
        .map(|&value| {
            let place = if value > last { return Err(value) } else { (value >> shift) as usize };
            let (start, stop) = (starts[place] as usize, starts[place + 1] as usize);
            let within = names.get(start..stop).ok_or(value)?;
            within.binary_search(&value).map(|at| (start + at) as u32).map_err(|_| value)
        })
        .collect()
}

/// The distinct pairs, one after another in `pairs`, in the order in which they first come. None if one has no second.
///
/// Most pairs come more than once: a table of those that are new stays in the cache, which a sort would not.
pub fn distinct_pairs(pairs: &[u64]) -> Option<Vec<u64>> {
    let (pairs, rest) = pairs.as_chunks::<2>();
    if !rest.is_empty() || u32::try_from(pairs.len()).is_err() {
        return None;
    }
    let mut found: Vec<[u64; 2]> = Vec::new();
    // Where a pair is in `found`, plus one; less than half full.
    let mut table = vec![0_u32; 1 << 12];
    for pair in pairs {
        if 2 * found.len() >= table.len() {
            table = vec![0; 2 * table.len()];
            for (at, pair) in found.iter().enumerate() {
                let slot = slot(&table, &found, pair);
                table[slot] = at as u32 + 1;
            }
        }
        let slot = slot(&table, &found, pair);
        if table[slot] == 0 {
            found.push(*pair);
            table[slot] = found.len() as u32;
        }
    }
    Some(found.into_flattened())
}

/// The slot of a pair in the table: its own, or a free one.
fn slot(table: &[u32], found: &[[u64; 2]], pair: &[u64; 2]) -> usize {
    let [low, high] = *pair;
    let mixed = (low ^ high.rotate_left(32)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0x94D0_49BB_1331_11EB);
    let mut slot = (mixed >> (64 - table.len().ilog2())) as usize;
    while table[slot] != 0 && found[table[slot] as usize - 1] != *pair {
        slot = (slot + 1) & (table.len() - 1);
    }
    slot
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_what_is_marked_before() {
        let mut words = [0; 3];
        mark(&mut words, &[3, 64, 63, 64, 191]).unwrap();
        let before = [0, 2, 3];
        let numbers = [0, 3, 4, 63, 64, 65, 128, 191];
        assert_eq!(places(&words, &before, &numbers).unwrap(), [0, 0, 1, 1, 2, 3, 3, 3]);
        for wrong in [-1, 192, i64::MAX, i64::MIN] {
            assert_eq!(mark(&mut words, &[wrong]), Err(wrong));
            assert_eq!(places(&words, &before, &[wrong]), Err(wrong));
        }
    }

    #[test]
    fn pairs_come_once() {
        let mut pairs = Vec::new();
        for number in 0..30_000_u64 {
            pairs.extend([number % 7_000, (number % 7_000) << 40]);
        }
        assert_eq!(distinct_pairs(&pairs), Some(pairs[..14_000].to_vec()));
        assert_eq!(distinct_pairs(&[1, 2, 2, 1, 1, 2]), Some(vec![1, 2, 2, 1]));
        assert_eq!(distinct_pairs(&[]), Some(vec![]));
        assert_eq!(distinct_pairs(&[1, 2, 3]), None);
    }

    #[test]
    fn values_are_found_among_names() {
        for names in [vec![0], vec![7], vec![0, 1, 2, 3], vec![3, 1 << 20, 1 << 63, u64::MAX - 1, u64::MAX]] {
            let places: Vec<u32> = (0..names.len() as u32).collect();
            assert_eq!(find(&names, &names), Ok(places));
            assert_eq!(find(&names, &[names[0], 5]), Err(5));
            assert_eq!(find(&names, &[u64::MAX - 2]), Err(u64::MAX - 2));
        }
        assert_eq!(find(&[], &[]), Ok(vec![]));
        assert_eq!(find(&[], &[1]), Err(1));
        // What does not ascend is refused, or not found; it never ends the process.
        assert_eq!(find(&[9, 1], &[9]), Err(9));
    }

    #[test]
    fn the_root_of_a_set_is_its_smallest_member() {
        let mut parents: Vec<u32> = (0..8).collect();
        join(&mut parents, &[7, 6, 2, 5, 3], &[5, 7, 1, 2, 3]).unwrap();
        let roots: Vec<usize> = (0..8).map(|member| root(&mut parents, member)).collect();
        assert_eq!(roots, [0, 1, 1, 3, 4, 1, 1, 1]);
        assert_eq!(join(&mut parents, &[0, 0], &[1, 8]), Err(8));
        assert_eq!(join(&mut parents, &[-1], &[1]), Err(-1));
        assert_eq!(root(&mut parents, 1), 1);
    }
}
