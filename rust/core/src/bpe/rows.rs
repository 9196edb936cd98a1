//! Rows to spans: `boq`, a token for each tag of the condition, the question, `eoq`; then the answer, `eoa`.

use rustc_hash::FxHashMap;

/// The tokens around the texts of a row.
pub struct Layout {
    /// Opens a row.
    pub boq: u32,
    /// Ends a question.
    pub eoq: u32,
    /// Ends an answer.
    pub eoa: u32,
    /// Tokens by tag of a condition.
    pub tags: FxHashMap<String, u32>,
    /// Whether an empty condition has no tags, rather than the tag with an empty name.
    pub untagged: bool,
}

impl Layout {
    fn has_tags(&self, condition: &str) -> bool {
        !(self.untagged && condition.is_empty() && !self.tags.contains_key(""))
    }
}

/// One of the two texts of a row.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The instruction.
    Question,
    /// The response.
    Answer,
}

/// The spans of consecutive rows, and where they are.
#[derive(Default)]
pub struct Spans {
    /// For each row the instruction span, directly followed by the response span.
    pub tokens: Vec<u32>,
    /// Where each instruction span begins.
    pub inst_start: Vec<u64>,
    /// The length of each instruction span.
    pub inst_len: Vec<u64>,
    /// Where each response span begins.
    pub resp_start: Vec<u64>,
    /// The length of each response span.
    pub resp_len: Vec<u64>,
    /// The bytes without a symbol, summed over all texts.
    pub dropped: u64,
    offset: u64,
}

impl Spans {
    /// Reserve room for `rows` rows and `tokens` tokens. The first token is at `offset` of the array that these tokens are
    /// a part of.
    pub fn new(offset: u64, rows: usize, tokens: usize) -> Self {
        let index = || Vec::with_capacity(rows);
        Self {
            tokens: Vec::with_capacity(tokens),
            inst_start: index(),
            inst_len: index(),
            resp_start: index(),
            resp_len: index(),
            dropped: 0,
            offset,
        }
    }

    /// Append a row. `text` appends the ids of its question or answer and says how many of its bytes have no symbol.
    ///
    /// # Errors
    /// A tag of the condition that the layout does not know; the spans are not usable then.
    pub fn push<'c>(
        &mut self,
        layout: &Layout,
        condition: &'c str,
        mut text: impl FnMut(Part, &mut Vec<u32>) -> u64,
    ) -> Result<(), UnknownTag<'c>> {
        let start = self.tokens.len();
        self.tokens.push(layout.boq);
        if layout.has_tags(condition) {
            for tag in condition.split(',') {
                self.tokens.push(*layout.tags.get(tag).ok_or(UnknownTag(tag))?);
            }
        }
        self.dropped += text(Part::Question, &mut self.tokens);
        self.tokens.push(layout.eoq);
        let middle = self.tokens.len();
        self.dropped += text(Part::Answer, &mut self.tokens);
        self.tokens.push(layout.eoa);
        self.inst_start.push(self.offset + start as u64);
        self.inst_len.push((middle - start) as u64);
        self.resp_start.push(self.offset + middle as u64);
        self.resp_len.push((self.tokens.len() - middle) as u64);
        Ok(())
    }
}

/// A tag without a token.
#[derive(Debug, PartialEq, Eq)]
pub struct UnknownTag<'a>(pub &'a str);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_follow_each_other_and_start_at_the_offset() {
        let tags = [("a".to_owned(), 4), ("b".to_owned(), 5)].into_iter().collect();
        let layout = Layout { boq: 1, eoq: 2, eoa: 3, tags, untagged: false };
        let mut spans = Spans::new(100, 2, 0);
        let mut push = |condition, question: &[u32], answer: &[u32]| {
            spans.push(&layout, condition, |part, tokens| {
                let ids = if part == Part::Question { question } else { answer };
                tokens.extend_from_slice(ids);
                ids.len() as u64
            })
        };
        assert_eq!(push("b,a,a", &[10, 11], &[]), Ok(()));
        assert_eq!(push("a", &[], &[12]), Ok(()));
        assert_eq!(spans.tokens, [1, 5, 4, 4, 10, 11, 2, 3, 1, 4, 2, 12, 3]);
        assert_eq!((spans.inst_start, spans.inst_len), (vec![100, 108], vec![7, 3]));
        assert_eq!((spans.resp_start, spans.resp_len), (vec![107, 111], vec![1, 2]));
        assert_eq!(spans.dropped, 3);
    }

    #[test]
    fn an_unknown_tag_is_named_as_it_is_written() {
        let tags = [("a".to_owned(), 4)].into_iter().collect();
        let layout = Layout { boq: 1, eoq: 2, eoa: 3, tags, untagged: false };
        for (condition, tag) in [("", ""), ("a,", ""), ("a, a", " a"), ("A", "A"), ("a,x,y", "x")] {
            let mut spans = Spans::default();
            assert_eq!(spans.push(&layout, condition, |_, _| 0), Err(UnknownTag(tag)));
        }
    }

    #[test]
    fn an_empty_condition_may_mean_no_tags() {
        let tags = [("a".to_owned(), 4)].into_iter().collect();
        let mut layout = Layout { boq: 1, eoq: 2, eoa: 3, tags, untagged: true };
        let mut spans = Spans::default();
        assert_eq!(spans.push(&layout, "", |_, _| 0), Ok(()));
        assert_eq!(spans.tokens, [1, 2, 3]);
        assert_eq!(spans.push(&layout, "a,", |_, _| 0), Err(UnknownTag("")));
        layout.tags.insert(String::new(), 5);
        let mut spans = Spans::default();
        assert_eq!(spans.push(&layout, "", |_, _| 0), Ok(()));
        assert_eq!(spans.tokens, [1, 5, 2, 3]);
    }
}
