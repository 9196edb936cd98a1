//! Memory in large pages.
//!
//! A table of 16 MB reached at random costs a page walk at nearly every access with pages of 4 KiB, and a buffer
//! written for the first time a fault for every one of them.

#![allow(unsafe_code)]

/// What Linux calls a huge page on x86-64 and, as a rule, on 64-bit ARM.
#[cfg(target_os = "linux")]
const HUGE: usize = 2 << 20;

/// An empty vector with room for `capacity` elements, in large pages where it is large and the system gives them.
pub fn vec_with_capacity<T>(capacity: usize) -> Vec<T> {
    let vec = Vec::with_capacity(capacity);
    #[cfg(target_os = "linux")]
    {
        let start = vec.as_ptr() as usize;
        let end = start + vec.capacity() * size_of::<T>();
        let (first, last) = (start.next_multiple_of(HUGE), end / HUGE * HUGE);
        if first < last {
            // SAFETY: the range lies within the vector's memory; the advice changes how it is backed, never what it
            // holds. A refusal is of no matter.
            unsafe { libc::madvise(first as *mut libc::c_void, last - first, libc::MADV_HUGEPAGE) };
        }
    }
    vec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_are_ordinary_ones() {
        for capacity in [0, 1, 1 << 12, 1 << 20, 3 << 20] {
            let mut vec = vec_with_capacity::<u32>(capacity);
            assert!(vec.is_empty() && vec.capacity() >= capacity);
            vec.resize(capacity + 1, 7);
            assert!(vec.iter().all(|&value| value == 7));
        }
    }
}
