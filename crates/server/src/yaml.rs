//! YAML as people write it: what upstream's reader takes is more than the standard allows.

use std::borrow::Cow;

use serde_saphyr::Error;

/// How the parser calls a quoted scalar whose next line is no deeper than what it is in.
const SHALLOW: &str = "invalid indentation in multiline quoted scalar";
/// What such a line begins with is no part of the scalar, so that it may as well be deeper.
const DEEPER: &str = "        ";
/// A text is read again so often at most, and while all readings together come to no more than so many bytes.
const MOST_READINGS: usize = 64;
const MOST_BYTES: usize = 8 << 20;

/// Reads a text by `read`, and takes quoted scalars whose further lines are not deeper than what they are in, as upstream does:
///
/// ```text
/// description: 'of one line
/// and another'
/// ```
///
/// The parser says itself which lines these are; nothing else of the text is changed, and no line gets another number.
pub fn lenient<T>(text: &str, read: impl Fn(&str) -> Result<T, Error>) -> Result<T, Error> {
    let mut text = Cow::Borrowed(text);
    let (mut bytes, mut readings) = (text.len(), 0);
    loop {
        let error = match read(&text) {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        bytes = bytes.saturating_add(text.len());
        readings += 1;
        match shallow_line(&error).and_then(|line| start_of(&text, line)) {
            Some(start) if bytes <= MOST_BYTES && readings < MOST_READINGS => {
                text.to_mut().insert_str(start, DEEPER);
            }
            _ => return Err(error),
        }
    }
}

/// The line, from 1 on.
fn shallow_line(error: &Error) -> Option<usize> {
    match error.without_snippet() {
        Error::ExternalMessage { msg, location, .. } if msg == SHALLOW => {
            usize::try_from(location.line()).ok()
        }
        _ => None,
    }
}

/// Where a line begins, in bytes.
fn start_of(text: &str, line: usize) -> Option<usize> {
    match line {
        0 => None,
        1 => Some(0),
        _ => memchr::memchr_iter(b'\n', text.as_bytes()).nth(line - 2).map(|at| at + 1),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(text: &str) -> Result<Value, Error> {
        lenient(text, |text| serde_saphyr::from_str::<Value>(text))
    }

    #[test]
    fn quoted_scalars_go_on_wherever_their_lines_begin() {
        let text = "a:\n  b: 'one\n  two\n\n three''s'\n  c: \"x \\\n  y\n  z\"\n  d: |\n    e: 'f\n    g'\nh:\n- i: 'j\nk'\n";
        let expected = json!({
            "a": {"b": "one two\nthree's", "c": "x y z", "d": "e: 'f\ng'\n"}, "h": [{"i": "j k"}],
        });
        assert_eq!(read(text).unwrap(), expected);
    }

    #[test]
    fn what_is_wrong_otherwise_stays_wrong_where_it_is() {
        let wrong = read("a:\n  b: 'one\n  two'\n c: [\n").unwrap_err();
        assert!(wrong.to_string().contains("line 4"), "{wrong}");
        assert!(read("a: 'one\ntwo").is_err(), "it has no end");
    }

    #[test]
    fn no_text_is_read_too_often() {
        let text = format!("a: 'b\n{}'\n{}", "c\n".repeat(100_000), "# d\n".repeat(100_000));
        assert!(read(&text).is_err());
    }
}
