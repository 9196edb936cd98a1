//! Records of fixed width dealt into parts, and segments of bytes put together: copies at the speed of memory.

/// Records of `width` bytes by part, those of a part in the order given, and the number of records of each part.
///
/// None if there are not as many parts as records, or a part is not below `parts`.
pub fn dealt(records: &[u8], width: usize, part: &[u32], parts: usize) -> Option<(Vec<u8>, Vec<usize>)> {
    if width.checked_mul(part.len())? != records.len() {
        return None;
    }
    let mut counts = vec![0_usize; parts];
    for &one in part {
        *counts.get_mut(one as usize)? += 1;
    }
    let mut places = Vec::with_capacity(parts);
    let mut before = 0;
    for count in &counts {
        places.push(before);
        before += count;
    }
    let mut found = vec![0; records.len()];
    match width {
        // Keys without and with tokens; the latter are as wide as pairs of ranks.
        12 => scatter::<12>(records, part, &mut places, &mut found),
        16 => scatter::<16>(records, part, &mut places, &mut found),
        _ => {
            for (record, &one) in records.chunks_exact(width.max(1)).zip(part) {
                let place = &mut places[one as usize];
                found[*place * width..][..width].copy_from_slice(record);
                *place += 1;
            }
        }
    }
    Some((found, counts))
}

fn scatter<const WIDTH: usize>(records: &[u8], part: &[u32], places: &mut [usize], found: &mut [u8]) {
    let found = found.as_chunks_mut::<WIDTH>().0;
    for (record, &one) in records.as_chunks::<WIDTH>().0.iter().zip(part) {
        let place = &mut places[one as usize];
        found[*place] = *record;
        *place += 1;
    }
}

/// Segments of `data`, given by starts and sizes, one after another. None if one is not within the data.
pub fn segments(data: &[u8], starts: &[i64], sizes: &[i64]) -> Option<Vec<u8>> {
    let mut total = 0_usize;
    for &size in sizes {
        total = total.checked_add(usize::try_from(size).ok()?)?;
    }
    // A segment may be copied more than once, but what is asked for at all has to be there.
    if sizes.iter().any(|&size| size as usize > data.len()) {
        return None;
    }
    let mut found = Vec::with_capacity(total);
    for (&start, &size) in starts.iter().zip(sizes) {
        let start = usize::try_from(start).ok()?;
        found.extend_from_slice(data.get(start..start.checked_add(size as usize)?)?);
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_a_part_stay_in_order() {
        for width in [1, 3, 12, 16] {
            let records: Vec<u8> = (0..7).flat_map(|record| vec![record; width]).collect();
            let (found, counts) = dealt(&records, width, &[2, 0, 2, 3, 0, 2, 0], 4).unwrap();
            let order: Vec<u8> = found.chunks(width).map(|record| record[0]).collect();
            assert_eq!((order, counts), (vec![1, 4, 6, 0, 2, 5, 3], vec![3, 0, 3, 1]));
            assert!(found.chunks(width).all(|record| record.iter().all(|byte| *byte == record[0])));
        }
        assert_eq!(dealt(&[], 12, &[], 2), Some((vec![], vec![0, 0])));
    }

    #[test]
    fn what_does_not_belong_together_is_refused() {
        assert_eq!(dealt(&[0; 12], 12, &[0, 0], 1), None);
        assert_eq!(dealt(&[0; 12], 12, &[1], 1), None);
        assert_eq!(dealt(&[0; 12], usize::MAX, &[0, 0], 1), None);
        for (start, size) in [(-1, 1), (0, 5), (4, 1), (3, 2), (0, -1), (i64::MAX, 1), (0, i64::MAX)] {
            assert_eq!(segments(b"0123", &[start], &[size]), None);
        }
    }

    #[test]
    fn segments_follow_each_other() {
        assert_eq!(segments(b"0123456", &[5, 0, 7, 2], &[2, 1, 0, 3]).unwrap(), b"560234");
        assert_eq!(segments(b"", &[], &[]).unwrap(), b"");
    }
}
