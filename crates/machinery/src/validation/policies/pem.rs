//! Blocks of PEM as Go reads them: whatever is no block is passed over.

use base64::{
    Engine,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};

/// One block.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// What stands after `BEGIN`.
    pub label: String,
    pub has_headers: bool,
    pub bytes: Vec<u8>,
}

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const DASHES: &str = "-----";

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

/// The first block, and what follows it.
pub fn decode(bytes: &[u8]) -> Option<(Block, &[u8])> {
    // Every line is looked at once, whether it begins a block or not.
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    let mut from = 0;
    while let Some((begin, after)) = next_line(text, from) {
        from = after;
        let label = begin.strip_prefix(BEGIN).and_then(|rest| rest.trim_end().strip_suffix(DASHES));
        if let Some(label) = label
            && let Some((block, end)) = body(text, after, label)
        {
            return Some((block, &bytes[end..]));
        }
    }
    None
}

/// The line at `from` without its end, and where the next one starts.
fn next_line(text: &str, from: usize) -> Option<(&str, usize)> {
    let rest = text.get(from..).filter(|rest| !rest.is_empty())?;
    match rest.split_once('\n') {
        Some((line, _)) => Some((line.trim_end_matches('\r'), from + line.len() + 1)),
        None => Some((rest, text.len())),
    }
}

fn body(text: &str, from: usize, label: &str) -> Option<(Block, usize)> {
    let end_line = format!("{END}{label}{DASHES}");
    let (mut at, mut data, mut has_headers) = (from, String::new(), false);
    let mut in_headers = true;
    while let Some((line, after)) = next_line(text, at) {
        at = after;
        let line = line.trim_end();
        if line.starts_with(END) {
            let bytes = BASE64.decode(&data).ok().filter(|_| line == end_line)?;
            return Some((Block { label: label.to_owned(), has_headers, bytes }, at));
        }
        if in_headers && line.contains(':') {
            has_headers = true;
            continue;
        }
        in_headers = false;
        data.extend(line.chars().filter(|c| !c.is_ascii_whitespace()));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_among_other_text() {
        let text = b"x\n-----BEGIN A-----\nAAEC\nAw==\n-----END A-----\nrest";
        let (block, rest) = decode(text).unwrap();
        assert_eq!(block, Block { label: "A".to_owned(), has_headers: false, bytes: vec![0, 1, 2, 3] });
        assert_eq!(rest, b"rest");
        let headed = b"-----BEGIN A-----\nK: v\n\nAAEC\n-----END A-----\n";
        assert!(decode(headed).unwrap().0.has_headers);
    }

    #[test]
    fn what_is_no_block_is_none() {
        for text in [
            "",
            "x",
            "-----BEGIN A-----\n",
            "-----BEGIN A-----\nAA==\n-----END B-----\n",
            "-----BEGIN A-----\n*\n-----END A-----\n",
        ] {
            assert_eq!(decode(text.as_bytes()), None, "{text}");
        }
    }
}
