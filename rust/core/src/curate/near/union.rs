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
