//! Files that are looked at where the page cache has them: a copy takes a third of the time that their digest takes.
//!
//! A mapped file that another program cuts ends the process by SIGBUS. Here it is an error: where the file ends, the
//! thread that looks at it sees zeros, and is told when it has finished.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{Ordering, compiler_fence};

/// Fewer bytes are copied: mapping them takes longer.
const FEW: usize = 1 << 15;

/// Linux maps what is there at once: each 16 pages would else be an exception of their own.
#[cfg(target_os = "linux")]
const FLAGS: libc::c_int = libc::MAP_PRIVATE | libc::MAP_POPULATE;
#[cfg(not(target_os = "linux"))]
const FLAGS: libc::c_int = libc::MAP_PRIVATE;

thread_local! {
    /// The addresses that this thread looks at, and whether the file has ended below them.
    static HERE: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    static CUT: Cell<bool> = const { Cell::new(false) };
}

/// What SIGBUS did before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Do `work` on bytes of a file, which must not be many: they are in `buffer` if the system does not map them.
///
/// # Errors
/// The file cannot be read, or ended earlier; what `work` made is void then.
pub fn look<T>(
    file: &File,
    place: u64,
    length: usize,
    buffer: &mut Vec<u8>,
    work: impl FnOnce(&[u8]) -> T,
) -> io::Result<T> {
    let mapped = if length < FEW { None } else { Mapped::new(file, place, length) };
    let Some(mapped) = mapped else {
        buffer.resize(buffer.len().max(length), 0);
        file.read_exact_at(&mut buffer[..length], place)?;
        return Ok(work(&buffer[..length]));
    };
    let made = mapped.look(work);
    // Of its last page the system gives zeros after the end.
    if made.is_none() || file.metadata()?.len() < place + length as u64 {
        buffer.resize(buffer.len().max(length), 0);
        file.read_exact_at(&mut buffer[..length], place)?; // says why
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    made.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

struct Mapped {
    start: usize,
    size: usize,
    /// Where in it the bytes are that were asked for.
    skipped: usize,
    length: usize,
}

impl Mapped {
    fn new(file: &File, place: u64, length: usize) -> Option<Self> {
        listen()?;
        // SAFETY: this asks for a number.
        let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
        let first = place / page * page;
        let skipped = (place - first) as usize;
        let (size, offset) = ((skipped + length).next_multiple_of(page as usize), libc::off_t::try_from(first).ok()?);
        // SAFETY: the system chooses where; nothing else is there.
        let start = unsafe { libc::mmap(null_mut(), size, libc::PROT_READ, FLAGS, file.as_raw_fd(), offset) };
        (start != libc::MAP_FAILED).then_some(Self { start: start as usize, size, skipped, length })
    }

    /// None if the file has ended before.
    fn look<T>(&self, work: impl FnOnce(&[u8]) -> T) -> Option<T> {
        HERE.set((self.start, self.start + self.size));
        CUT.set(false);
        compiler_fence(Ordering::SeqCst);
        let first = (self.start + self.skipped) as *const u8;
        // SAFETY: it is mapped until this is dropped, and readable: `cut` puts zeros where the file has ended.
        let made = work(unsafe { std::slice::from_raw_parts(first, self.length) });
        compiler_fence(Ordering::SeqCst);
        HERE.set((0, 0));
        (!CUT.get()).then_some(made)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        HERE.set((0, 0));
        // SAFETY: it was mapped here, and nothing refers to it any more.
        unsafe { libc::munmap(self.start as *mut libc::c_void, self.size) };
    }
}

/// Have [`cut`] called; none if the system does not.
fn listen() -> Option<()> {
    if BEFORE.get().is_some() {
        return Some(());
    }
    // SAFETY: both are plain data of the system's, and `cut` does only what a handler may do.
    unsafe {
        let (mut ours, mut before): (libc::sigaction, libc::sigaction) = (std::mem::zeroed(), std::mem::zeroed());
        (libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut before) == 0).then_some(())?;
        let mut mine = false;
        BEFORE.get_or_init(|| {
            mine = true;
            before
        });
        ours.sa_sigaction = cut as *const () as usize;
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        (!mine || libc::sigaction(libc::SIGBUS, &raw const ours, null_mut()) == 0).then_some(())
    }
}

/// Put zeros where a file has ended that this thread looks at; of any other address the handler before is asked.
extern "C" fn cut(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let (start, end) = HERE.get();
    // SAFETY: the system gives `info`; the pages that are replaced are those of `Mapped`, to its end.
    unsafe {
        let address = (*info).si_addr() as usize;
        if (start..end).contains(&address) {
            let page = address & !(libc::sysconf(libc::_SC_PAGESIZE) as usize - 1);
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            let made = libc::mmap(page as *mut libc::c_void, end - page, libc::PROT_READ, flags, -1, 0);
            if made != libc::MAP_FAILED {
                CUT.set(true);
                return;
            }
        }
        if let Some(before) = BEFORE.get() {
            libc::sigaction(libc::SIGBUS, before, null_mut());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_the_file_and_a_cut_one_is_an_error() {
        let path = std::env::temp_dir().join(format!("pairmill-mapped-{}", std::process::id()));
        let bytes: Vec<u8> = (0..=250).cycle().take(5 << 16).collect();
        std::fs::write(&path, &bytes).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let mut buffer = Vec::new();
        for (place, length) in [(0, 0), (3, 5), (0, bytes.len()), (4097, FEW), (1, FEW + 77), (bytes.len() - FEW, FEW)]
        {
            let seen = look(&file, place as u64, length, &mut buffer, <[u8]>::to_vec).unwrap();
            assert_eq!(seen, bytes[place..place + length], "{length} from {place}");
        }
        let sum = |bytes: &[u8]| bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>();
        let kind = |made: io::Result<u64>| made.map_err(|error| error.kind());
        let early = Err(io::ErrorKind::UnexpectedEof);
        assert_eq!(kind(look(&file, 0, bytes.len() + 1, &mut buffer, sum)), early);
        let cut = |seen: &[u8]| {
            file.set_len(1 << 16).unwrap();
            sum(seen)
        };
        assert_eq!(kind(look(&file, 0, bytes.len(), &mut buffer, cut)), early);
        assert_eq!(kind(look(&file, 0, (1 << 16) + 8, &mut buffer, sum)), early);
        assert_eq!(look(&file, 0, 1 << 16, &mut buffer, sum).unwrap(), sum(&bytes[..1 << 16]));
        assert_eq!(kind(look(&file, 1 << 20, FEW, &mut buffer, sum)), early);
        std::fs::remove_file(path).unwrap();
    }
}
