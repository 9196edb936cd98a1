//! Draws the tasks of a plan, many at a time: their rows, in order, and the order of the rows of each epoch.
//!
//! Columns and places stay in memory up to a budget; then they go to files in a scratch folder. No byte depends on the
//! budget, on the number of threads or on how many tasks are given at once.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use super::drawn::{Drawn, Draws, Histogram, Sums, Task, Walked};
use super::eligible::Counts;
use super::numbers::Numbers;
use super::order::Order;
use super::source::{Buffers, COLUMNS};
use crate::pages::vec_with_capacity;

/// Bytes of the header of a one-dimensional `.npy`, which whoever knows the length writes.
pub const HEADER: u64 = 128;
/// Rows that are drawn before they are put in order; they stay in memory until then.
const AT_ONCE: u64 = 1 << 18;

/// What was drawn of a task, without its rows.
#[derive(Debug)]
pub struct Report {
    /// Rows and tokens of the task, by its files.
    pub size: (u64, u64),
    /// What became of rows that may not be sampled.
    pub counts: Counts,
    /// Sums.
    pub sums: Sums,
    /// By walk.
    pub walks: Vec<Walked>,
}

/// An array of a plan.
#[derive(Debug)]
pub enum Made {
    /// In memory.
    Held(Numbers),
    /// In a file, after [`HEADER`] bytes: how many numbers, and the bytes of each.
    Stored(PathBuf, u64, usize),
}

/// A plan that grows.
pub struct Planner {
    draws: Draws,
    workers: usize,
    budget: usize,
    scratch: Option<PathBuf>,
    columns: Vec<Column>,
    orders: Vec<Order>,
    /// The file of places, and where it ends.
    places: Option<(File, u64)>,
    rows: u64,
    lengths: Histogram,
    cuts: Histogram,
}

impl Planner {
    /// A plan without rows.
    ///
    /// Args: `bases` are the plans that this one adds to, one upon another: each has orders of its own. `budget` is in
    /// bytes.
    #[must_use]
    pub fn new(draws: Draws, bases: usize, workers: usize, budget: usize) -> Self {
        let seed = if bases == 0 { draws.seed.clone() } else { format!("{}\0base\0{bases}", draws.seed) };
        let orders = (0..draws.epochs).map(|number| Order::new(&seed, number)).collect();
        let columns = COLUMNS[..4].iter().map(|name| Column::new(name)).collect();
        Self {
            draws,
            workers: workers.max(1),
            budget,
            scratch: None,
            columns,
            orders,
            places: None,
            rows: 0,
            lengths: [0; 64],
            cuts: [0; 64],
        }
    }

    /// Draw some of these tasks: the first ones, until many rows are drawn, or one cannot be read here; whether one
    /// cannot. Those before it are part of the plan then.
    ///
    /// # Errors
    /// The scratch folder cannot be written, or there are 2^32 rows or more.
    pub fn draw(&mut self, tasks: &[Task]) -> io::Result<(Vec<Report>, bool)> {
        let (next, held) = (AtomicUsize::new(0), AtomicU64::new(0));
        let draws = &self.draws;
        let work = || {
            let mut buffers = Buffers::default();
            let mut made = Vec::new();
            while held.load(Ordering::Relaxed) < AT_ONCE {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(task) = tasks.get(number) else { break };
                let (mut mine, mut lost) = ([0; 64], [0; 64]);
                let drawn = draws.draw(task, &mut buffers, &mut mine, &mut lost);
                if let Ok(drawn) = &drawn {
                    held.fetch_add(drawn.sums.rows.max(drawn.sums.drawn_rows), Ordering::Relaxed);
                }
                let failed = drawn.is_err();
                made.push((number, drawn, mine, lost));
                if failed {
                    break;
                }
            }
            made
        };
        let mut made: Vec<_> = if self.workers == 1 || tasks.len() == 1 {
            work()
        } else {
            thread::scope(|scope| {
                let threads: Vec<_> = (0..self.workers).map(|_| scope.spawn(work)).collect();
                threads
                    .into_iter()
                    .flat_map(|thread| thread.join().unwrap_or_else(|error| std::panic::resume_unwind(error)))
                    .collect()
            })
        };
        made.sort_unstable_by_key(|(number, ..)| *number);
        let mut drawn = Vec::with_capacity(made.len());
        let mut failed = false;
        for (_, result, lengths, cuts) in made {
            let Ok(result) = result else {
                failed = true;
                break;
            };
            add(&mut self.lengths, &lengths);
            add(&mut self.cuts, &cuts);
            drawn.push(result);
        }
        self.take(&drawn)?;
        let reports =
            drawn.into_iter().map(|Drawn { size, counts, sums, walks, .. }| Report { size, counts, sums, walks });
        Ok((reports.collect(), failed))
    }

    /// Put drawn rows into columns, and their places into orders.
    fn take(&mut self, drawn: &[Drawn]) -> io::Result<()> {
        let mut firsts = Vec::with_capacity(drawn.len());
        for item in drawn {
            firsts.push(self.rows as u32);
            if item.columns.len() > self.columns.len() {
                let mut column = Column::new(COLUMNS[4]);
                column.held = Numbers::Narrow(vec![-1; self.rows as usize]);
                self.columns.push(column);
            }
            for (number, column) in self.columns.iter_mut().enumerate() {
                match item.columns.get(number) {
                    Some(values) => column.append(values)?,
                    None => column.append(&Numbers::Narrow(vec![-1; item.sums.unique_rows as usize]))?,
                }
            }
            self.rows += item.sums.unique_rows;
        }
        if self.rows > u64::from(u32::MAX) {
            return Err(io::Error::other(format!("{} rows are drawn; a plan holds at most {}", self.rows, u32::MAX)));
        }
        let order = |number: usize, order: &mut Order| {
            for (item, &first) in drawn.iter().zip(&firsts) {
                let taken = &item.epochs[number];
                for _ in 0..taken.whole {
                    order.extend(first..first + item.sums.unique_rows as u32);
                }
                order.extend(taken.rows.iter().map(|&row| first + row));
            }
        };
        let share = self.orders.len().div_ceil(self.workers).max(1);
        thread::scope(|scope| {
            for (part, orders) in self.orders.chunks_mut(share).enumerate() {
                scope.spawn(move || {
                    orders.iter_mut().enumerate().for_each(|(at, mine)| order(part * share + at, mine));
                });
            }
        });
        self.store()
    }

    /// Whether more is in memory than the budget, and no folder is known to put it in.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let columns: usize = self.columns.iter().map(|column| column.held.len() * column.held.width()).sum();
        self.scratch.is_none() && columns + self.places_held() > self.budget
    }

    /// Move what is in memory to files in this folder, and from now on what comes.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn store_in(&mut self, scratch: PathBuf) -> io::Result<()> {
        self.places = Some((file(&scratch.join("places"))?, 0));
        self.scratch = Some(scratch);
        self.store()
    }

    fn places_held(&self) -> usize {
        self.orders.iter().map(Order::held).sum()
    }

    fn store(&mut self) -> io::Result<()> {
        let full = self.places_held() > self.budget / 2; // vectors that grow hold up to twice what is in them
        if let (Some((places, end)), Some(scratch)) = (&mut self.places, &self.scratch) {
            for column in &mut self.columns {
                column.store(scratch)?;
            }
            for order in self.orders.iter_mut().filter(|_| full) {
                *end = order.store(places, *end)?;
            }
        }
        Ok(())
    }

    /// Rows by tokens as often as they are drawn, and those that are drawn and cut by tokens that they lose.
    #[must_use]
    pub fn histograms(&self) -> (&Histogram, &Histogram) {
        (&self.lengths, &self.cuts)
    }

    /// Rows that are drawn, each once.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Take the columns, by name.
    ///
    /// # Errors
    /// As the scratch folder says.
    pub fn columns(&mut self) -> io::Result<Vec<(String, Made)>> {
        self.store()?;
        let taken = std::mem::take(&mut self.columns);
        Ok(taken.into_iter().map(Column::made).collect())
    }

    /// Take the places of an epoch, in their order.
    ///
    /// # Errors
    /// As the scratch folder says.
    pub fn epoch(&mut self, number: usize) -> io::Result<Made> {
        let mut order = std::mem::replace(&mut self.orders[number], Order::new("", 0));
        let sizes = order.sizes().to_vec();
        let count: u64 = sizes.iter().sum();
        let scratch = self.places.as_ref().map(|(file, _)| file);
        let path = self.scratch.as_ref().map(|folder| folder.join(format!("epoch_{number}.npy")));
        let out = path.as_ref().map(|path| file(path)).transpose()?;
        let held = if out.is_some() { 0 } else { count as usize };
        let mut values = vec_with_capacity(held);
        values.resize(held, 0_i32);
        let mut jobs = Vec::with_capacity(sizes.len());
        let (mut rest, mut first) = (&mut values[..], HEADER);
        for (bucket, &size) in sizes.iter().enumerate() {
            let mine = if out.is_some() { 0 } else { size as usize };
            let (part, after) = std::mem::take(&mut rest).split_at_mut(mine);
            rest = after;
            jobs.push((bucket, first, part));
            first += size * 4;
        }
        let jobs = Mutex::new(jobs.into_iter());
        let work = || -> io::Result<()> {
            loop {
                let job = jobs.lock().map(|mut jobs| jobs.next()).unwrap_or_default();
                let Some((bucket, first, part)) = job else { return Ok(()) };
                let places = order.bucket(bucket, scratch)?;
                match &out {
                    Some(file) => {
                        let bytes: Vec<u8> = places.iter().flat_map(|place| place.to_le_bytes()).collect();
                        file.write_all_at(&bytes, first)?;
                    }
                    None => part.iter_mut().zip(places).for_each(|(to, place)| *to = place as i32),
                }
            }
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..self.workers).map(|_| scope.spawn(work)).collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().unwrap_or_else(|error| std::panic::resume_unwind(error)))
        })?;
        drop(jobs);
        Ok(path.map_or(Made::Held(Numbers::Narrow(values)), |path| Made::Stored(path, count, 4)))
    }
}

fn add(sums: &mut Histogram, counts: &Histogram) {
    sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
}

fn file(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create(true).truncate(true).open(path)
}

struct Column {
    name: String,
    held: Numbers,
    path: PathBuf,
    file: Option<File>,
    stored: u64,
}

impl Column {
    fn new(name: &str) -> Self {
        Self { name: name.to_owned(), held: Numbers::default(), path: PathBuf::new(), file: None, stored: 0 }
    }

    fn append(&mut self, values: &Numbers) -> io::Result<()> {
        let width = self.held.width();
        self.held.append(values);
        if self.held.width() > width && self.stored > 0 {
            self.widen_stored()?;
        }
        Ok(())
    }

    fn store(&mut self, scratch: &Path) -> io::Result<()> {
        if self.file.is_none() {
            self.path = scratch.join(format!("{}.npy", self.name));
            self.file = Some(file(&self.path)?);
        }
        if let Some(file) = &self.file {
            let mut bytes = Vec::with_capacity(self.held.len() * self.held.width());
            self.held.encode(&mut bytes);
            file.write_all_at(&bytes, HEADER + self.stored * self.held.width() as u64)?;
            self.stored += self.held.len() as u64;
            self.held.clear();
        }
        Ok(())
    }

    /// A number of 64 bits has come: write the file again.
    fn widen_stored(&mut self) -> io::Result<()> {
        let Some(old) = self.file.take() else { return Ok(()) };
        let wide = self.path.with_extension("wide");
        let new = file(&wide)?;
        let mut bytes = vec![0; 1 << 20];
        let (mut at, end) = (0, self.stored * 4);
        while at < end {
            let size = (end - at).min(1 << 20) as usize;
            old.read_exact_at(&mut bytes[..size], HEADER + at)?;
            let values = bytes[..size].as_chunks().0.iter().map(|&value| i64::from(i32::from_le_bytes(value)));
            let again: Vec<u8> = values.flat_map(i64::to_le_bytes).collect();
            new.write_all_at(&again, HEADER + at * 2)?;
            at += size as u64;
        }
        fs::rename(wide, &self.path)?;
        self.file = Some(new);
        Ok(())
    }

    fn made(self) -> (String, Made) {
        let made = match self.file {
            Some(_) => Made::Stored(self.path, self.stored, self.held.width()),
            None => Made::Held(self.held),
        };
        (self.name, made)
    }
}
