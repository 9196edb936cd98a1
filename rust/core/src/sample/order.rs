//! The random order of an epoch in two steps, as Rao (1961) and Sandelius (1962) shuffle: each place goes to a random
//! bucket, and each bucket is shuffled by itself. All orders are equally likely, a bucket stays in the processor's
//! cache, and buckets may wait on disk until their turn.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::philox::Philox;
use crate::pages::vec_with_capacity;

const BUCKETS: usize = 1 << 8;
/// Buckets that a draw of 32 bits decides.
const DECIDED: u32 = 4;
const WIDTH: usize = 4;
/// Places that wait until they go to their buckets together: how many each bucket gets is counted first, so none grows.
const WAITING: usize = 1 << 20;

/// The places of an epoch, in buckets.
pub struct Order {
    seed: String,
    number: usize,
    random: Philox,
    bits: u32,
    left: u32,
    waiting: Vec<u32>,
    /// Places in their buckets, bucket after bucket, and where each bucket ends.
    parts: Vec<(Vec<u32>, [usize; BUCKETS])>,
    /// Byte and number of places in the scratch file, for each bucket.
    stored: Vec<Vec<(u64, u32)>>,
    sizes: Vec<u64>,
}

impl Order {
    /// No place yet, of the epoch with this number.
    #[must_use]
    pub fn new(seed: &str, number: usize) -> Self {
        Self {
            seed: seed.to_owned(),
            number,
            random: Philox::named(seed, &format!("epoch\0{number}")),
            bits: 0,
            left: 0,
            waiting: Vec::new(),
            parts: Vec::new(),
            stored: vec![Vec::new(); BUCKETS],
            sizes: vec![0; BUCKETS],
        }
    }

    /// Add places.
    pub fn extend(&mut self, mut places: impl Iterator<Item = u32>) {
        loop {
            self.waiting.extend(places.by_ref().take(WAITING - self.waiting.len()));
            if self.waiting.len() < WAITING {
                return;
            }
            self.sort();
        }
    }

    /// Put places that wait into their buckets.
    fn sort(&mut self) {
        let count = self.waiting.len();
        if count == 0 {
            return;
        }
        let (mut buckets, mut ends) = (Vec::with_capacity(count), [0; BUCKETS]);
        for _ in 0..count {
            if self.left == 0 {
                (self.bits, self.left) = (self.random.draw(), DECIDED);
            }
            let bucket = self.bits as u8;
            ends[usize::from(bucket)] += 1;
            buckets.push(bucket);
            self.bits >>= 8;
            self.left -= 1;
        }
        let mut start = 0;
        for (end, size) in ends.iter_mut().zip(&mut self.sizes) {
            *size += *end as u64;
            (*end, start) = (start, start + *end);
        }
        let mut places = vec_with_capacity(count);
        places.resize(count, 0);
        for (&place, &bucket) in self.waiting.iter().zip(&buckets) {
            let end = &mut ends[usize::from(bucket)];
            places[*end] = place;
            *end += 1;
        }
        self.waiting.clear();
        self.parts.push((places, ends));
    }

    /// Bytes of the places that are in memory.
    #[must_use]
    pub fn held(&self) -> usize {
        (self.waiting.len() + self.parts.iter().map(|(places, _)| places.len()).sum::<usize>()) * WIDTH
    }

    /// Move all places in memory to the end of a file, which is at `end`; the new end.
    ///
    /// # Errors
    /// As the file says.
    pub fn store(&mut self, file: &File, mut end: u64) -> io::Result<u64> {
        self.sort();
        let (mut bytes, first) = (Vec::new(), end);
        for (number, stored) in self.stored.iter_mut().enumerate() {
            let before = end;
            for places in self.parts.iter().map(|part| of_bucket(part, number)) {
                end += (places.len() * WIDTH) as u64;
                places.iter().for_each(|place| bytes.extend_from_slice(&place.to_le_bytes()));
            }
            if end > before {
                stored.push((before, ((end - before) / WIDTH as u64) as u32));
            }
        }
        self.parts.clear();
        file.write_all_at(&bytes, first)?;
        Ok(end)
    }

    /// The number of places in each bucket, which can be taken from now on.
    #[must_use]
    pub fn sizes(&mut self) -> &[u64] {
        self.sort();
        &self.sizes
    }

    /// Take the places of a bucket, shuffled, out of memory and of the scratch file.
    ///
    /// # Errors
    /// As the file says.
    pub fn bucket(&self, number: usize, file: Option<&File>) -> io::Result<Vec<u32>> {
        let mut places = Vec::with_capacity(self.sizes[number] as usize);
        let mut bytes = Vec::new();
        for &(place, count) in &self.stored[number] {
            let file = file.ok_or_else(|| io::Error::other("no scratch file"))?;
            bytes.resize(count as usize * WIDTH, 0);
            file.read_exact_at(&mut bytes, place)?;
            places.extend(bytes.as_chunks().0.iter().map(|&place| u32::from_le_bytes(place)));
        }
        self.parts.iter().for_each(|part| places.extend_from_slice(of_bucket(part, number)));
        let mut random = Philox::named(&self.seed, &format!("epoch\0{}\0{number}", self.number));
        random.scatter(&mut places);
        Ok(places)
    }
}

fn of_bucket((places, ends): &(Vec<u32>, [usize; BUCKETS]), number: usize) -> &[u32] {
    &places[number.checked_sub(1).map_or(0, |before| ends[before])..ends[number]]
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn ordered(order: &mut Order, file: Option<&File>) -> Vec<u32> {
        let sizes = order.sizes().to_vec();
        assert_eq!(sizes.len(), BUCKETS);
        (0..BUCKETS).flat_map(|number| order.bucket(number, file).unwrap()).collect()
    }

    #[test]
    fn all_orders_are_equally_frequent() {
        let mut counts = HashMap::<Vec<u32>, u32>::new();
        for seed in 0..24_000 {
            let mut order = Order::new(&seed.to_string(), 0);
            order.extend(0..4);
            *counts.entry(ordered(&mut order, None)).or_default() += 1;
        }
        assert_eq!(counts.len(), 24);
        let chi: f64 = counts.values().map(|&count| (f64::from(count) - 1000.0).powi(2) / 1000.0).sum();
        assert!(chi < 52.0, "{chi}"); // of 23 degrees of freedom: 5e-4
    }

    #[test]
    fn places_are_anywhere() {
        let mut order = Order::new("5", 3);
        order.extend(0..100_000);
        let made = ordered(&mut order, None);
        let mut sorted = made.clone();
        sorted.sort_unstable();
        assert!(sorted.iter().copied().eq(0..100_000));
        // Where each tenth of the places went, by tenths.
        let mut counts = [[0_u32; 10]; 10];
        (0..).zip(&made).for_each(|(to, &from): (usize, _)| counts[from as usize / 10_000][to / 10_000] += 1);
        let chi: f64 = counts.as_flattened().iter().map(|&count| (f64::from(count) - 1000.0).powi(2) / 1000.0).sum();
        assert!(chi < 140.0, "{chi}"); // of 81 degrees of freedom: 5e-5
        let rising = made.windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert!((49_000..51_000).contains(&rising), "{rising}");
    }

    #[test]
    fn an_order_does_not_depend_on_what_was_stored() {
        let path = std::env::temp_dir().join(format!("pairmill-order-{}", std::process::id()));
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        let (mut plain, mut stored) = (Order::new("1", 0), Order::new("1", 0));
        let mut end = 0;
        for first in (0..5000).step_by(500) {
            plain.extend(first..first + 500);
            stored.extend(first..first + 500);
            if first % 1500 == 0 {
                end = stored.store(&file, end).unwrap();
            }
        }
        assert_eq!(end, 5000 * 4);
        assert_eq!(ordered(&mut plain, None), ordered(&mut stored, Some(&file)));
        assert_eq!(plain.sizes(), stored.sizes());
        std::fs::remove_file(path).unwrap();
    }
}
