//! Tokens of an expression: the longest match of CEL's grammar wins.

/// What a token is; `text` is read from the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An operator or punctuation, one or two characters.
    Symbol(&'static str),
    In,
    True,
    False,
    Null,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Identifier,
    EscapedIdentifier,
    End,
}

#[derive(Debug, Clone, Copy)]
pub struct Token {
    pub kind: Kind,
    /// Offsets in code points.
    pub start: u32,
    pub end: u32,
}

/// Something that begins no token.
#[derive(Debug)]
pub struct Unrecognized {
    pub start: u32,
    pub text: String,
}

const SYMBOLS: &[&str] = &[
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!", "?", ":",
    "+", "*", "/", "%",
];

/// Reads all tokens; what is none of them is reported and skipped.
pub fn tokens(text: &[char]) -> (Vec<Token>, Vec<Unrecognized>) {
    let mut lexer = Lexer { text };
    let mut tokens = Vec::new();
    let mut unrecognized = Vec::new();
    let mut at = 0;
    while at < text.len() {
        if let Some(end) = lexer.hidden(at) {
            at = end;
            continue;
        }
        match lexer.token(at) {
            Ok((kind, end)) => {
                tokens.push(Token { kind, start: at as u32, end: end as u32 });
                at = end;
            }
            Err(failed) => {
                let end = (failed + 1).clamp(at + 1, text.len());
                unrecognized.push(Unrecognized { start: at as u32, text: text[at..end].iter().collect() });
                at = end;
            }
        }
    }
    tokens.push(Token { kind: Kind::End, start: text.len() as u32, end: text.len() as u32 });
    (tokens, unrecognized)
}

struct Lexer<'a> {
    text: &'a [char],
}

impl Lexer<'_> {
    fn at(&self, index: usize) -> Option<char> {
        self.text.get(index).copied()
    }

    fn starts_with(&self, index: usize, text: &str) -> bool {
        text.chars().enumerate().all(|(offset, character)| self.at(index + offset) == Some(character))
    }

    fn while_(&self, mut index: usize, accept: impl Fn(char) -> bool) -> usize {
        while self.at(index).is_some_and(&accept) {
            index += 1;
        }
        index
    }

    /// The end of white space or of a comment.
    fn hidden(&self, at: usize) -> Option<usize> {
        if self.starts_with(at, "//") {
            return Some(self.while_(at, |character| character != '\n'));
        }
        let end = self.while_(at, |character| matches!(character, '\t' | ' ' | '\r' | '\n' | '\u{c}'));
        (end > at).then_some(end)
    }

    /// The token that starts here and its end, or where reading one failed.
    fn token(&mut self, at: usize) -> Result<(Kind, usize), usize> {
        let first = self.text[at];
        if let Some(found) = self.quoted(at) {
            return found;
        }
        if first.is_ascii_digit() || (first == '.' && self.at(at + 1).is_some_and(|c| c.is_ascii_digit())) {
            return Ok(self.number(at));
        }
        if first.is_ascii_alphabetic() || first == '_' {
            let end = self.while_(at, |character| character.is_ascii_alphanumeric() || character == '_');
            let word: String = self.text[at..end].iter().collect();
            let kind = match word.as_str() {
                "in" => Kind::In,
                "true" => Kind::True,
                "false" => Kind::False,
                "null" => Kind::Null,
                _ => Kind::Identifier,
            };
            return Ok((kind, end));
        }
        if first == '`' {
            let end = self
                .while_(at + 1, |c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/' | ' '));
            let closed = end > at + 1 && self.at(end) == Some('`');
            return if closed { Ok((Kind::EscapedIdentifier, end + 1)) } else { Err(end) };
        }
        for symbol in SYMBOLS {
            if self.starts_with(at, symbol) {
                return Ok((Kind::Symbol(symbol), at + symbol.len()));
            }
        }
        Err(if matches!(first, '=' | '&' | '|') { at + 1 } else { at })
    }

    fn number(&self, at: usize) -> (Kind, usize) {
        let hex = self.starts_with(at, "0x") && self.at(at + 2).is_some_and(|c| c.is_ascii_hexdigit());
        if hex {
            let end = self.while_(at + 2, |character| character.is_ascii_hexdigit());
            return self.suffixed(end);
        }
        let digits = |index| self.while_(index, |character: char| character.is_ascii_digit());
        let whole = digits(at);
        let fraction = if self.at(whole) == Some('.') { digits(whole + 1) } else { whole };
        let has_fraction = fraction > whole + 1;
        let mantissa = if has_fraction { fraction } else { whole };
        let exponent = self.exponent(mantissa);
        match exponent {
            Some(end) => (Kind::Double, end),
            None if has_fraction => (Kind::Double, mantissa),
            None => self.suffixed(whole),
        }
    }

    fn exponent(&self, at: usize) -> Option<usize> {
        if !matches!(self.at(at)?, 'e' | 'E') {
            return None;
        }
        let signed = matches!(self.at(at + 1), Some('+' | '-'));
        let start = at + 1 + usize::from(signed);
        let end = self.while_(start, |character| character.is_ascii_digit());
        (end > start).then_some(end)
    }

    fn suffixed(&self, end: usize) -> (Kind, usize) {
        if matches!(self.at(end), Some('u' | 'U')) { (Kind::Uint, end + 1) } else { (Kind::Int, end) }
    }

    /// A string or bytes literal with its prefixes; `None` where none starts here.
    fn quoted(&self, at: usize) -> Option<Result<(Kind, usize), usize>> {
        let mut index = at;
        let bytes = matches!(self.at(index)?, 'b' | 'B');
        index += usize::from(bytes);
        let raw = matches!(self.at(index)?, 'r' | 'R');
        index += usize::from(raw);
        let quote = self.at(index).filter(|character| matches!(character, '"' | '\''))?;
        let kind = if bytes { Kind::Bytes } else { Kind::String };
        let triple = [quote; 3].iter().enumerate().all(|(offset, c)| self.at(index + offset) == Some(*c));
        if triple && let Ok(end) = self.body(index + 3, quote, true, raw) {
            return Some(Ok((kind, end)));
        }
        match self.body(index + 1, quote, false, raw) {
            Ok(end) => Some(Ok((kind, end))),
            // `b` or `r` before what is no string is an identifier.
            Err(_) if bytes || raw => None,
            Err(failed) => Some(Err(failed)),
        }
    }

    fn body(&self, mut at: usize, quote: char, triple: bool, raw: bool) -> Result<usize, usize> {
        let length = if triple { 3 } else { 1 };
        loop {
            let Some(character) = self.at(at) else { return Err(at) };
            if (0..length).all(|offset| self.at(at + offset) == Some(quote)) {
                return Ok(at + length);
            }
            match character {
                '\n' | '\r' if !triple => return Err(at),
                '\\' if !raw => at = self.escape(at)?,
                _ => at += 1,
            }
        }
    }

    fn escape(&self, at: usize) -> Result<usize, usize> {
        let Some(character) = self.at(at + 1) else { return Err(at + 1) };
        let of = |count: usize, accept: fn(char) -> bool| {
            for offset in 0..count {
                if !self.at(at + 2 + offset).is_some_and(accept) {
                    return Err(at + 2 + offset);
                }
            }
            Ok(at + 2 + count)
        };
        match character {
            'a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '"' | '\'' | '\\' | '?' | '`' => Ok(at + 2),
            'x' | 'X' => of(2, |c| c.is_ascii_hexdigit()),
            'u' => of(4, |c| c.is_ascii_hexdigit()),
            'U' => of(8, |c| c.is_ascii_hexdigit()),
            '0'..='3' => of(2, |c| ('0'..='7').contains(&c)),
            _ => Err(at + 1),
        }
    }
}

/// The value of a string literal, quotes and prefix included, as bytes; for a string they are UTF-8.
pub fn unquote(literal: &str, bytes: bool) -> Result<Vec<u8>, &'static str> {
    const BAD: &str = "unable to unescape string";
    let normalized = literal.replace("\r\n", "\n").replace('\r', "\n");
    let text = normalized.as_str();
    let (raw, text) = match text.strip_prefix(['r', 'R']) {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let stripped = ["'''", "\"\"\"", "'", "\""]
        .iter()
        .find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote))
        .ok_or(BAD)?;
    if raw || !stripped.contains('\\') {
        return Ok(stripped.as_bytes().to_vec());
    }
    let mut value = Vec::with_capacity(stripped.len());
    let mut characters = stripped.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            push_char(&mut value, character);
            continue;
        }
        let escaped = characters.next().ok_or("unable to unescape string, found '\\' as last character")?;
        let (digits, radix) = match escaped {
            'a' => (simple(&mut value, 0x07), 0),
            'b' => (simple(&mut value, 0x08), 0),
            'f' => (simple(&mut value, 0x0c), 0),
            'n' => (simple(&mut value, b'\n'), 0),
            'r' => (simple(&mut value, b'\r'), 0),
            't' => (simple(&mut value, b'\t'), 0),
            'v' => (simple(&mut value, 0x0b), 0),
            '\\' | '\'' | '"' | '`' | '?' => (simple(&mut value, escaped as u8), 0),
            'x' | 'X' => (2, 16),
            'u' if !bytes => (4, 16),
            'U' if !bytes => (8, 16),
            '0'..='3' => (2, 8),
            _ => return Err(BAD),
        };
        if digits == 0 {
            continue;
        }
        let mut code = if radix == 8 { escaped as u32 - '0' as u32 } else { 0 };
        for _ in 0..digits {
            let digit = characters.next().and_then(|digit| digit.to_digit(radix)).ok_or(BAD)?;
            code = code.checked_mul(radix).and_then(|code| code.checked_add(digit)).ok_or(BAD)?;
        }
        if bytes {
            value.push(code as u8);
        } else {
            push_char(&mut value, char::from_u32(code).ok_or("invalid unicode code point")?);
        }
    }
    Ok(value)
}

fn simple(value: &mut Vec<u8>, byte: u8) -> u32 {
    value.push(byte);
    0
}

fn push_char(value: &mut Vec<u8>, character: char) {
    let mut buffer = [0; 4];
    value.extend_from_slice(character.encode_utf8(&mut buffer).as_bytes());
}
