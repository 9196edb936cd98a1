//! Rows out of JSON text, by the library that the reference reads them with.

use std::borrow::Cow;

use serde::Deserialize;

/// What the reference derives its reader from: the names are required, once each, in any order; other names are ignored,
/// and an array of three texts is a row too.
#[derive(Deserialize)]
struct Row<'a> {
    #[serde(borrow)]
    condition: Cow<'a, str>,
    #[serde(borrow)]
    instruction: Cow<'a, str>,
    #[serde(borrow)]
    response: Cow<'a, str>,
}

/// Bytes of `-1.` or `1e+`, and some more.
const LONGEST_NUMBER_START: usize = 8;

/// How far [`rows`] came.
#[derive(Debug, PartialEq, Eq)]
pub struct Parsed {
    /// Bytes up to the end of the last row.
    pub bytes: usize,
    /// Whether it stopped at something other than a row, rather than at the end of the data.
    pub refused: bool,
}

/// Hand condition, instruction and response of each row of `data` to `take`: a stream of JSON values with any white
/// space, or none, between them.
///
/// `last`: nothing follows `data`, so a row without an end is refused. What is refused is not judged here.
pub fn rows(data: &[u8], last: bool, mut take: impl FnMut(&str, &str, &str)) -> Parsed {
    // All of the data, because values that are skipped have to be UTF-8 too.
    let (text, broken) = match std::str::from_utf8(data) {
        Ok(text) => (text, false),
        Err(error) => {
            let valid = &data[..error.valid_up_to()];
            (std::str::from_utf8(valid).unwrap_or_default(), last || error.error_len().is_some())
        }
    };
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<Row<'_>>();
    let mut bytes = 0;
    let refused = loop {
        match stream.next() {
            Some(Ok(row)) => {
                take(&row.condition, &row.instruction, &row.response);
                bytes = stream.byte_offset();
            }
            Some(Err(error)) => break last || broken || !(error.is_eof() || near_the_end(text, &error)),
            None => break broken,
        }
    };
    Parsed { bytes, refused }
}

/// Whether the error may be due to where the data is cut: `1e` is not a number, and `1e5` is.
fn near_the_end(text: &str, error: &serde_json::Error) -> bool {
    let line: usize = text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
    text.len().saturating_sub(line + error.column()) < LONGEST_NUMBER_START
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(data: &[u8], last: bool) -> (Vec<[String; 3]>, Parsed) {
        let mut found = Vec::new();
        let parsed = rows(data, last, |a, b, c| found.push([a, b, c].map(str::to_owned)));
        (found, parsed)
    }

    const TWO: &str = concat!(
        r#"{"response":"\u00e9\n","x":[{"condition":5},-1.5e-999],"instruction":"日","condition":"cot"}"#,
        " \r\n\t",
        r#"["direct","","\ud83d\ude00"]"#,
        "\n",
    );

    #[test]
    fn any_cut_of_good_rows_waits_for_more() {
        let (whole, parsed) = parse(TWO.as_bytes(), true);
        assert_eq!(whole, [["cot", "日", "é\n"], ["direct", "", "😀"]].map(|row| row.map(str::to_owned)));
        assert_eq!(parsed, Parsed { bytes: TWO.len() - 1, refused: false });
        for cut in 0..TWO.len() {
            let (mut found, parsed) = parse(&TWO.as_bytes()[..cut], false);
            assert!(!parsed.refused, "cut at {cut}");
            let (rest, parsed) = parse(&TWO.as_bytes()[parsed.bytes..], true);
            found.extend(rest);
            assert_eq!(found, whole, "cut at {cut}");
            assert!(!parsed.refused, "cut at {cut}");
        }
    }

    #[test]
    fn what_is_no_row_is_refused_behind_the_rows_before_it() {
        let good = r#"{"condition":"c","instruction":"i","response":"r"}"#;
        for bad in [
            &b"{}"[..],
            b"5",
            b"[\"c\",\"i\"]",
            b"[\"c\",\"i\",\"r\",\"x\"]",
            b"{\"condition\":\"c\",\"condition\":\"c\",\"instruction\":\"i\",\"response\":\"r\"}",
            b"{\"condition\":null,\"instruction\":\"i\",\"response\":\"r\"}",
            b"{\"condition\":\"\\ud800\",\"instruction\":\"i\",\"response\":\"r\"}",
            b"{\"condition\":\"c\",\"instruction\":\"i\",\"response\":\"r\",\"x\":\"\xff\"}",
        ] {
            let data = [good.as_bytes(), bad, good.as_bytes()].concat();
            for last in [false, true] {
                let (found, parsed) = parse(&data, last);
                assert_eq!((found.len(), parsed), (1, Parsed { bytes: good.len(), refused: true }));
            }
        }
        let (found, parsed) = parse(&good.as_bytes()[..good.len() - 1], true);
        assert_eq!((found.len(), parsed), (0, Parsed { bytes: 0, refused: true }));
    }
}
