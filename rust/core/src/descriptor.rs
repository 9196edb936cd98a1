//! Files that another language has open.

#![allow(unsafe_code)]

use std::io;

/// Write all bytes at a place of an open file.
///
/// # Errors
/// The system's; part of the bytes may be written then.
pub fn write_all_at(descriptor: i32, mut bytes: &[u8], mut place: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let offset = place.try_into().map_err(|_| io::ErrorKind::FileTooLarge)?;
        // SAFETY: the bytes are ours to read; the system checks the descriptor.
        let done = unsafe { libc::pwrite(descriptor, bytes.as_ptr().cast(), bytes.len(), offset) };
        let Ok(done) = usize::try_from(done) else {
            let error = io::Error::last_os_error();
            if error.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return Err(error);
        };
        if done == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = &bytes[done..];
        place += done as u64;
    }
    Ok(())
}

/// Read bytes at a place of an open file; returns fewer only where it ends.
///
/// # Errors
/// The system's.
pub fn read_at(descriptor: i32, bytes: &mut [u8], place: u64) -> io::Result<usize> {
    let mut count = 0;
    while count < bytes.len() {
        let offset = (place + count as u64).try_into().map_err(|_| io::ErrorKind::FileTooLarge)?;
        let left = &mut bytes[count..];
        // SAFETY: the bytes are ours to write; the system checks the descriptor.
        let done = unsafe { libc::pread(descriptor, left.as_mut_ptr().cast(), left.len(), offset) };
        match usize::try_from(done) {
            Ok(0) => break,
            Ok(done) => count += done,
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn bytes_go_where_they_are_to_go() {
        let path = std::env::temp_dir().join(format!("pairmill-descriptor-{}", std::process::id()));
        let file = std::fs::File::create(&path).unwrap();
        write_all_at(file.as_raw_fd(), b"def", 3).unwrap();
        write_all_at(file.as_raw_fd(), b"abc", 0).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"abcdef");
        let (opened, mut bytes) = (std::fs::File::open(&path).unwrap(), [0; 4]);
        assert_eq!(read_at(opened.as_raw_fd(), &mut bytes, 3).unwrap(), 3);
        assert_eq!(&bytes, b"def\0");
        assert_eq!(read_at(-1, &mut bytes, 0).unwrap_err().raw_os_error(), Some(libc::EBADF));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(write_all_at(-1, b"x", 0).unwrap_err().raw_os_error(), Some(libc::EBADF));
        assert!(write_all_at(file.as_raw_fd(), b"x", u64::MAX).is_err());
    }
}
