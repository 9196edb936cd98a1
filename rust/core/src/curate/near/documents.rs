//! Two documents: rows with an empty instruction.

use super::Settings;
use super::grams::shared;
use super::verify::{Rule, Verdict};

/// Decide from the sets of 5-grams, ascending.
pub(super) fn verify(a: &[u64], b: &[u64], settings: &Settings) -> Verdict {
    let common = shared(a, b);
    let share = |of: usize| if of == 0 { 0.0 } else { common as f64 / of as f64 };
    let containment = share(a.len().min(b.len()));
    let jaccard = share(a.len() + b.len() - common);
    let duplicate = jaccard >= settings.jaccard;
    let contained = !duplicate && containment >= settings.containment;
    Verdict {
        duplicate,
        rule: if contained { Rule::Contained } else { Rule::Document },
        instruction: containment,
        response: jaccard,
    }
}

/// The hashes that are the smallest of some `window` adjacent ones, in order: texts that share a run of `window` hashes
/// share one of these.
pub(super) fn sampled(hashes: &[u64], window: usize, mut each: impl FnMut(u64)) {
    let mut last = None;
    for start in 0..=hashes.len().saturating_sub(window) {
        let end = (start + window).min(hashes.len());
        // The one chosen before stays the smallest in most steps; only what came in is compared then.
        let best = match last {
            Some(place) if place >= start => {
                if hashes[end - 1] < hashes[place] {
                    end - 1
                } else {
                    place
                }
            }
            _ => match (start..end).min_by_key(|&place| hashes[place]) {
                Some(place) => place,
                None => return,
            },
        };
        if last != Some(best) {
            each(hashes[best]);
        }
        last = Some(best);
    }
}

#[cfg(test)]
mod tests {
    use super::super::grams::mix;
    use super::*;

    #[test]
    fn texts_that_share_a_whole_window_share_a_choice() {
        let hashes = |first: u64, count: u64| (first..first + count).map(|n| mix(n, 1)).collect::<Vec<_>>();
        let chosen = |hashes: &[u64]| {
            let mut all = Vec::new();
            sampled(hashes, 32, |hash| all.push(hash));
            all
        };
        let whole = chosen(&hashes(0, 5000));
        assert!((200..420).contains(&whole.len()), "{}", whole.len());
        for start in 0..500 {
            let own = hashes(1 << 40 | start << 16, 300);
            let text = [&own, hashes(start * 9, 32).as_slice(), &own].concat();
            assert!(chosen(&text).iter().any(|hash| whole.contains(hash)), "{start}");
        }
        assert!(chosen(&[]).is_empty());
        assert_eq!(chosen(&[9]), [9]);
        assert_eq!(chosen(&[9, 3, 7]), [3]);
    }
}
