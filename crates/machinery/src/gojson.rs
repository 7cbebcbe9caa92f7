//! JSON mistakes in the words of Go's decoder, and how deep a tree may be.
//!
//! serde_json decides whether a body is JSON; when it is not, [`syntax_error`] says so as upstream does.

use serde_json::Value;

use crate::gotext;

/// How many levels of arrays and objects a tree may have: what serde_json reads back.
pub const MAX_DEPTH: usize = 127;

/// What the decoder's state expects next.
#[derive(Clone, Copy)]
enum State {
    Value,
    /// After `[`.
    ValueOrEnd,
    /// After `{`.
    KeyOrEnd,
    /// After `,` in an object.
    Key,
    Colon,
    AfterValue,
}

/// Why `bytes` is not JSON, if it is not.
pub fn syntax_error(bytes: &[u8]) -> Option<String> {
    let mut scanner = Scanner { bytes, at: 0, stack: Vec::new() };
    scanner.run().err()
}

/// Parses JSON, or says what is wrong with it.
pub fn parse(bytes: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(bytes).map_err(|error| syntax_error(bytes).unwrap_or_else(|| error.to_string()))
}

/// What Go's decoder calls the type of a value.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Levels of arrays and objects. A scalar has none. Stops counting above `MAX_DEPTH`.
pub fn depth(value: &Value) -> usize {
    depth_within(value, MAX_DEPTH + 1)
}

fn depth_within(value: &Value, limit: usize) -> usize {
    if limit == 0 {
        return 0;
    }
    match value {
        Value::Array(items) => 1 + items.iter().map(|item| depth_within(item, limit - 1)).max().unwrap_or(0),
        Value::Object(members) => {
            1 + members.values().map(|item| depth_within(item, limit - 1)).max().unwrap_or(0)
        }
        _ => 0,
    }
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The open containers: `{` or `[`.
    stack: Vec<u8>,
}

type Scan<T = ()> = Result<T, String>;

impl Scanner<'_> {
    fn run(&mut self) -> Scan {
        let mut state = State::Value;
        loop {
            let byte = self.next_after_space()?;
            state = match (state, byte) {
                (State::ValueOrEnd, b']') | (State::KeyOrEnd, b'}') => self.close(),
                (State::Value | State::ValueOrEnd, _) => self.value(byte)?,
                (State::KeyOrEnd | State::Key, b'"') => {
                    self.string()?;
                    State::Colon
                }
                (State::KeyOrEnd | State::Key, _) => {
                    return Err(unexpected(byte, "looking for beginning of object key string"));
                }
                (State::Colon, b':') => State::Value,
                (State::Colon, _) => return Err(unexpected(byte, "after object key")),
                (State::AfterValue, _) => self.after_value(byte)?,
            };
            if self.stack.is_empty() {
                return self.finish();
            }
        }
    }

    fn close(&mut self) -> State {
        self.stack.pop();
        State::AfterValue
    }

    fn value(&mut self, byte: u8) -> Scan<State> {
        match byte {
            b'{' | b'[' => {
                self.stack.push(byte);
                return Ok(if byte == b'{' { State::KeyOrEnd } else { State::ValueOrEnd });
            }
            b'"' => self.string()?,
            b'-' | b'0'..=b'9' => self.number(byte)?,
            b't' => self.literal("true")?,
            b'f' => self.literal("false")?,
            b'n' => self.literal("null")?,
            _ => return Err(unexpected(byte, "looking for beginning of value")),
        }
        Ok(State::AfterValue)
    }

    fn after_value(&mut self, byte: u8) -> Scan<State> {
        match (self.stack.last(), byte) {
            (Some(b'{'), b',') => Ok(State::Key),
            (Some(b'['), b',') => Ok(State::Value),
            (Some(b'{'), b'}') | (Some(b'['), b']') => Ok(self.close()),
            (Some(b'{'), _) => Err(unexpected(byte, "after object key:value pair")),
            _ => Err(unexpected(byte, "after array element")),
        }
    }

    fn finish(&mut self) -> Scan {
        while let Some(byte) = self.bytes.get(self.at) {
            if !is_space(*byte) {
                return Err(unexpected(*byte, "after top-level value"));
            }
            self.at += 1;
        }
        Ok(())
    }

    fn string(&mut self) -> Scan {
        loop {
            match self.next()? {
                b'"' => return Ok(()),
                b'\\' => self.escape()?,
                byte @ 0..=0x1f => return Err(unexpected(byte, "in string literal")),
                _ => {}
            }
        }
    }

    fn escape(&mut self) -> Scan {
        match self.next()? {
            b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => Ok(()),
            b'u' => {
                for _ in 0..4 {
                    let byte = self.next()?;
                    if !byte.is_ascii_hexdigit() {
                        return Err(unexpected(byte, "in \\u hexadecimal character escape"));
                    }
                }
                Ok(())
            }
            byte => Err(unexpected(byte, "in string escape code")),
        }
    }

    fn number(&mut self, first: u8) -> Scan {
        let mut first = first;
        if first == b'-' {
            first = self.next()?;
            if !first.is_ascii_digit() {
                return Err(unexpected(first, "in numeric literal"));
            }
        }
        if first != b'0' {
            self.digits();
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digit("after decimal point in numeric literal")?;
            self.digits();
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digit("in exponent of numeric literal")?;
            self.digits();
        }
        Ok(())
    }

    fn digit(&mut self, context: &str) -> Scan {
        let byte = self.next()?;
        if byte.is_ascii_digit() { Ok(()) } else { Err(unexpected(byte, context)) }
    }

    fn digits(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
    }

    fn literal(&mut self, word: &str) -> Scan {
        for expected in word.bytes().skip(1) {
            let byte = self.next()?;
            if byte != expected {
                return Err(unexpected(
                    byte,
                    &format!("in literal {word} (expecting '{}')", expected as char),
                ));
            }
        }
        Ok(())
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn next(&mut self) -> Scan<u8> {
        let byte = self.peek().ok_or_else(|| "unexpected end of JSON input".to_owned())?;
        self.at += 1;
        Ok(byte)
    }

    fn next_after_space(&mut self) -> Scan<u8> {
        loop {
            let byte = self.next()?;
            if !is_space(byte) {
                return Ok(byte);
            }
        }
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

fn unexpected(byte: u8, context: &str) -> String {
    let shown = match byte {
        b'\'' => "'\\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        _ => {
            let quoted = gotext::quote((byte as char).encode_utf8(&mut [0; 4]));
            format!("'{}'", &quoted[1..quoted.len() - 1])
        }
    };
    format!("invalid character {shown} {context}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn mistakes_read_as_gos() {
        for (text, message) in [
            ("", "unexpected end of JSON input"),
            ("{", "unexpected end of JSON input"),
            ("x", "invalid character 'x' looking for beginning of value"),
            ("'a'", r"invalid character '\'' looking for beginning of value"),
            ("{a:1}", "invalid character 'a' looking for beginning of object key string"),
            ("{\"a\":1,}", "invalid character '}' looking for beginning of object key string"),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            ("{\"a\":1 \"b\"}", "invalid character '\"' after object key:value pair"),
            ("[1 2]", "invalid character '2' after array element"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("1 2", "invalid character '2' after top-level value"),
            ("01", "invalid character '1' after top-level value"),
            ("-x", "invalid character 'x' in numeric literal"),
            ("1.x", "invalid character 'x' after decimal point in numeric literal"),
            ("1e-x", "invalid character 'x' in exponent of numeric literal"),
            ("nul!", "invalid character '!' in literal null (expecting 'l')"),
            ("\"a\nb\"", r"invalid character '\n' in string literal"),
            (r#""\x""#, "invalid character 'x' in string escape code"),
            (r#""\u00g""#, r"invalid character 'g' in \u hexadecimal character escape"),
            ("é", "invalid character 'Ã' looking for beginning of value"),
        ] {
            assert_eq!(syntax_error(text.as_bytes()).as_deref(), Some(message), "{text}");
        }
        for text in ["null", " {} ", "[]", r#"{"a":[1,-0.5e+3,true,{"b":"\u00e9"}]}"#, "0"] {
            assert_eq!(syntax_error(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn depth_counts_containers() {
        assert_eq!(
            [json!(1), json!([]), json!({"a": [1, {"b": null}]})].map(|value| depth(&value)),
            [0, 1, 3]
        );
    }
}
