//! Pieces of files, read into memory that is used again: it stays in the processor's cache, and a mapped piece costs an
//! entry of the page table for each of its pages.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes of a page, and how much longer than what is read a buffer is.
const PAGE: usize = 1 << 12;

/// The bytes of a buffer, which grows if it has to, to read `length` bytes at a place of a file into.
///
/// They lie as far from the start of a page as in the file: copies to addresses that are a few bytes further, as those of
/// large vectors are, took five times as long on Zen 3, as each load waits for the store before it.
pub fn aligned(place: u64, length: usize, buffer: &mut Vec<u8>) -> &mut [u8] {
    if buffer.len() < length + PAGE {
        buffer.resize(length + PAGE, 0);
    }
    let skipped = (place as usize).wrapping_sub(buffer.as_ptr() as usize) % PAGE;
    &mut buffer[skipped..skipped + length]
}

/// Read `length` bytes at a place of a file into a buffer that grows if it has to; the bytes.
///
/// # Errors
/// The file cannot be read, or ends earlier.
pub fn read_piece<'a>(file: &File, place: u64, length: usize, buffer: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
    let bytes = aligned(place, length, buffer);
    file.read_exact_at(bytes, place)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_the_file_and_lie_as_in_its_pages() {
        let path = std::env::temp_dir().join(format!("pairmill-read-{}", std::process::id()));
        let bytes: Vec<u8> = (0..=250).cycle().take(5 << 16).collect();
        std::fs::write(&path, &bytes).unwrap();
        let (file, mut buffer) = (File::open(&path).unwrap(), Vec::new());
        for (place, length) in [(0, 0), (3, 5), (0, bytes.len()), (4097, 1 << 15), (bytes.len() - 77, 77)] {
            let read = read_piece(&file, place as u64, length, &mut buffer).unwrap();
            assert_eq!(read, &bytes[place..place + length], "{length} from {place}");
            assert_eq!(read.as_ptr() as usize % PAGE, place % PAGE);
        }
        let ended = read_piece(&file, 1, bytes.len(), &mut buffer).map_err(|error| error.kind());
        assert_eq!(ended, Err(io::ErrorKind::UnexpectedEof));
        std::fs::remove_file(path).unwrap();
    }
}
