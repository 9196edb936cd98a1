//! BLAKE3 of data that several threads read: pieces of one file are digested apart, in any order, and joined.
//!
//! A piece is a subtree of BLAKE3's tree, so the joined digest is the one that `b3sum` prints.

use blake3::hazmat::{ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};
pub use blake3::{Hash, Hasher};

/// Bytes of a piece; only the last piece of a file is shorter. A power of two, and long beside the time to open a file.
pub const PIECE: u64 = 16 << 20;

/// Bytes of a piece of a file that is digested while it is written.
pub const LEAF: u64 = 1 << 20;

/// How many pieces of `width` bytes a file of `size` bytes has: at least one.
pub fn pieces(size: u64, width: u64) -> u64 {
    size.div_ceil(width).max(1)
}

/// What is to be updated with the bytes of a piece, then finished.
pub struct Piece {
    hasher: Hasher,
    only: bool,
}

/// A digested piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// A file that is one piece.
    Root(Hash),
    /// A piece beside others.
    Inner(ChainingValue),
}

impl Piece {
    /// Begin the piece of this number, of a file of `size` bytes whose pieces have `width`, a power of two.
    pub fn new(number: u64, size: u64, width: u64) -> Self {
        let mut hasher = Hasher::new();
        hasher.set_input_offset(number * width);
        Self { hasher, only: pieces(size, width) == 1 }
    }

    /// Add the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
    }

    /// Digest the piece, which holds bytes unless it is the only one.
    pub fn finish(&self) -> Node {
        if self.only { Node::Root(self.hasher.finalize()) } else { Node::Inner(self.hasher.finalize_non_root()) }
    }
}

/// Digest the bytes at a place of a file: all of it (`only`), or a piece whose size, but for the last one's, is a power of
/// two.
pub fn leaf(bytes: &[u8], place: u64, only: bool) -> Node {
    let mut hasher = Hasher::new();
    hasher.set_input_offset(place).update(bytes);
    if only { Node::Root(hasher.finalize()) } else { Node::Inner(hasher.finalize_non_root()) }
}

/// Join the pieces of a file, in order; none without pieces, or of pieces of several files.
pub fn join(nodes: &[Node]) -> Option<Hash> {
    if let [Node::Root(hash)] = nodes {
        return Some(*hash);
    }
    let (left, right) = nodes.split_at_checked(left_of(nodes.len())?)?;
    Some(merge_subtrees_root(&inner(left)?, &inner(right)?, Mode::Hash))
}

fn inner(nodes: &[Node]) -> Option<ChainingValue> {
    match nodes {
        [Node::Inner(value)] => Some(*value),
        _ => {
            let (left, right) = nodes.split_at_checked(left_of(nodes.len())?)?;
            Some(merge_subtrees_non_root(&inner(left)?, &inner(right)?, Mode::Hash))
        }
    }
}

/// The largest power of two below a number of pieces.
fn left_of(count: usize) -> Option<usize> {
    (count > 1).then(|| count.div_ceil(2).next_power_of_two())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(bytes: &[u8]) -> Hash {
        let size = bytes.len() as u64;
        let nodes: Vec<Node> = (0..pieces(size, PIECE))
            .map(|number| {
                let mut piece = Piece::new(number, size, PIECE);
                let start = (number * PIECE) as usize;
                piece.update(&bytes[start..bytes.len().min(start + PIECE as usize)]);
                piece.finish()
            })
            .collect();
        join(&nodes).unwrap()
    }

    /// Of the test vectors of BLAKE3: bytes 0, 1, … 250, 0, 1, …
    #[test]
    fn joined_pieces_have_the_digest_of_the_whole() {
        let pattern: Vec<u8> = (0..=250).cycle().take(5 * PIECE as usize + 3).collect();
        let empty = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
        assert_eq!(digest(&[]).to_hex().as_str(), empty);
        let of_1024 = "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7";
        assert_eq!(digest(&pattern[..1024]).to_hex().as_str(), of_1024);
        for pieces in 1..=5 {
            for size in [pieces * PIECE as usize - 1, pieces * PIECE as usize, pieces * PIECE as usize + 1] {
                assert_eq!(digest(&pattern[..size]), blake3::hash(&pattern[..size]), "{size} bytes");
            }
        }
    }

    #[test]
    fn pieces_of_several_files_are_not_joined() {
        let root = Piece::new(0, 1, PIECE).finish();
        assert_eq!(join(&[root, root]), None);
        assert_eq!(join(&[]), None);
    }
}
