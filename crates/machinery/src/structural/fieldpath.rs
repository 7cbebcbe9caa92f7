//! Paths to fields of a custom resource, as rules and selectable fields name them: `.spec.color`, `.map['key']`.

use super::{Additional, Structural};

/// A path that fits a schema.
pub struct FieldPath<'s> {
    /// As causes name fields: `spec.map[key]`.
    pub text: String,
    /// The first step.
    pub root: String,
    pub schema: Option<&'s Structural>,
}

/// Reads a path and follows it in a schema; `brackets` says whether `['key']` is allowed.
pub fn follow<'s>(path: &str, schema: &'s Structural, brackets: bool) -> Result<FieldPath<'s>, String> {
    let mut found = FieldPath { text: String::new(), root: String::new(), schema: Some(schema) };
    let mut tokens = Tokens { rest: path };
    while let Some(token) = tokens.next() {
        match token {
            "[" if !brackets => return Err("array notation is not allowed".to_owned()),
            "[" => {
                let token = tokens.next().ok_or("unexpected end of JSON path")?;
                let quoted = token.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
                let quoted = quoted.filter(|_| token.len() >= 2);
                let key = quoted.ok_or_else(|| format!("expected single quoted string but got {token}"))?;
                let key = unescape(key).map_err(|error| format!("invalid string literal: {error}"))?;
                found.step(&key)?;
                match tokens.next().ok_or("unexpected end of JSON path")? {
                    "]" => {}
                    token => return Err(format!("expected ] but got {token}")),
                }
            }
            "." => {
                let token = tokens.next().ok_or("unexpected end of JSON path")?;
                found.step(token)?;
            }
            token => return Err(format!("expected [ or . but got: {token}")),
        }
    }
    Ok(found)
}

impl FieldPath<'_> {
    fn step(&mut self, name: &str) -> Result<(), String> {
        const STRAY: &str = "does not refer to a valid field";
        let schema = self.schema.ok_or(STRAY)?;
        if self.root.is_empty() && self.text.is_empty() {
            self.root = name.to_owned();
        }
        if !schema.properties.is_empty() {
            if !self.text.is_empty() {
                self.text.push('.');
            }
            self.text.push_str(name);
            self.schema = Some(schema.properties.get(name).ok_or(STRAY)?);
            return Ok(());
        }
        let additional = schema.additional.as_ref().ok_or(STRAY)?;
        self.text.push_str(&format!("[{name}]"));
        self.schema = match additional {
            Additional::Schema(schema) => Some(schema),
            Additional::Allowed(_) => None,
        };
        Ok(())
    }
}

/// Dots and brackets stand alone; text in single quotes is one piece.
struct Tokens<'t> {
    rest: &'t str,
}

impl<'t> Iterator for Tokens<'t> {
    type Item = &'t str;

    fn next(&mut self) -> Option<&'t str> {
        if self.rest.is_empty() {
            return None;
        }
        let len = if self.rest.starts_with('\'') {
            let bytes = self.rest.as_bytes();
            let end = (1..bytes.len()).find(|at| bytes[*at] == b'\'' && bytes[at - 1] != b'\\');
            end.map_or(self.rest.len(), |end| end + 1)
        } else {
            self.rest.find(['.', '[', ']']).map_or(self.rest.len(), |end| end.max(1))
        };
        let (token, rest) = self.rest.split_at(len);
        self.rest = rest;
        Some(token)
    }
}

fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('a') => out.push('\x07'),
            Some('b') => out.push('\x08'),
            Some('f') => out.push('\x0c'),
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('t') => out.push('\t'),
            Some('v') => out.push('\x0b'),
            Some(c @ ('\'' | '\\')) => out.push(c),
            // A line break after a backslash is no escape.
            Some('\n') => out.push_str("\\\n"),
            Some(c) => return Err(format!("invalid escape char \\{c}")),
            None => out.push('\\'),
        }
    }
    Ok(out)
}
