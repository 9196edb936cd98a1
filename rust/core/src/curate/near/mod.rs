//! Near duplicates: [`sketch`] holds what is needed of a row, [`verify`] decides about two rows, [`signature`] gives the
//! keys by which candidates meet, [`buckets`] and [`refine`] make candidate pairs, [`resolve`] decides about all rows.

pub mod buckets;
mod documents;
mod grams;
pub mod records;
pub mod refine;
pub mod resolve;
pub mod signature;
pub mod sketch;
pub mod union;
pub mod verify;

/// Which fields are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fields {
    /// Both; a row with an empty instruction is a document.
    Pair,
    /// The instruction alone, by rules 3 to 6.
    Instruction,
    /// The response alone, by rules 3 to 6.
    Response,
}

impl Fields {
    /// Those of this name.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "pair" => Some(Self::Pair),
            "instruction" => Some(Self::Instruction),
            "response" => Some(Self::Response),
            _ => None,
        }
    }
}

/// Of which fields the numbers must be equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberGuard {
    /// Of both.
    Both,
    /// Of the instruction.
    Instruction,
    /// Of none.
    Off,
}

impl NumberGuard {
    /// The one of this name.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "both" => Some(Self::Both),
            "instruction" => Some(Self::Instruction),
            "off" => Some(Self::Off),
            _ => None,
        }
    }
}

/// What is compared, and how candidates are found.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The fields that are compared.
    pub fields: Fields,
    /// The fields of a pair whose numbers must be equal.
    pub number_guard: NumberGuard,
    /// Tokens from which on a response is evidence.
    pub min_response: usize,
    /// Tokens from which on an instruction may differ.
    pub min_instruction: usize,
    /// Bands of MinHash of a pair.
    pub bands: usize,
    /// Rows of a band of a pair.
    pub rows: usize,
    /// Bands of MinHash of a document.
    pub document_bands: usize,
    /// Rows of a band of a document.
    pub document_rows: usize,
    /// Jaccard index from which on documents are duplicates.
    pub jaccard: f64,
    /// Containment from which on a document is part of another.
    pub containment: f64,
    /// Rows that resemble each other of which none is removed: the next one is.
    pub keep: usize,
    /// Whether a row that resembles a removed one is compared with the row that stands for that.
    pub follow: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            fields: Fields::Pair,
            number_guard: NumberGuard::Both,
            min_response: 20,
            min_instruction: 16,
            bands: 32,
            rows: 4,
            document_bands: 20,
            document_rows: 5,
            jaccard: 0.8,
            containment: 0.9,
            keep: 1,
            follow: true,
        }
    }
}

/// Called between rows; false ends the work early, whose result is then not to be used.
pub type Alive<'a> = &'a mut dyn FnMut() -> bool;
