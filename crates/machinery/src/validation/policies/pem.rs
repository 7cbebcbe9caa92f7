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
    let mut rest = bytes;
    while let Some((line, after)) = next_line(rest) {
        rest = after;
        let label = line.strip_prefix(BEGIN).and_then(|label| label.strip_suffix(DASHES));
        if let Some(found) = label.and_then(|label| body(after, label)) {
            return Some(found);
        }
    }
    None
}

/// The first line without what is blank at its end, and what follows it. A line that is no text is an empty one.
fn next_line(bytes: &[u8]) -> Option<(&str, &[u8])> {
    if bytes.is_empty() {
        return None;
    }
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (line, after) = bytes.split_at(end);
    let line = std::str::from_utf8(line).unwrap_or_default();
    Some((line.trim_end(), after.get(1..).unwrap_or_default()))
}

fn body<'a>(bytes: &'a [u8], label: &str) -> Option<(Block, &'a [u8])> {
    let (mut rest, mut data, mut has_headers) = (bytes, String::new(), false);
    while let Some((line, after)) = next_line(rest) {
        rest = after;
        if let Some(end) = line.strip_prefix(END) {
            let bytes = BASE64.decode(&data).ok().filter(|_| end.strip_suffix(DASHES) == Some(label))?;
            return Some((Block { label: label.to_owned(), has_headers, bytes }, rest));
        }
        // Another block begins: this one never ends, and every line is looked at twice at most.
        if line.starts_with(BEGIN) {
            return None;
        }
        if data.is_empty() && line.contains(':') {
            has_headers = true;
            continue;
        }
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
            "-----BEGIN A-----\n-----BEGIN B-----\nAA==\n-----END A-----\n",
        ] {
            assert_eq!(decode(text.as_bytes()), None, "{text}");
        }
    }
}
