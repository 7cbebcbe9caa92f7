//! Patterns as Go's `regexp` reads them, rewritten for Rust's engine: `\d` and its like are ASCII, classes have no
//! set operations, and what Go refuses is refused in its words.

use std::fmt::Write;

/// Go's bound on `x{n}`.
const MAX_REPEAT: u32 = 1000;
/// Go's bound on the nesting of a pattern.
const MAX_DEPTH: usize = 1000;

/// The same pattern for Rust's engine, or why Go has none.
pub fn translate(pattern: &str) -> Result<String, String> {
    let mut translator =
        Translator { whole: pattern, rest: pattern, output: String::with_capacity(pattern.len()) };
    translator.run().map_err(|(code, expr)| fault(code, &expr))?;
    Ok(translator.output)
}

/// What Rust's engine refuses although the rewriting did not.
pub fn describe(pattern: &str, error: &regex::Error) -> String {
    match error {
        regex::Error::CompiledTooBig(_) => fault("expression too large", pattern),
        _ => fault("invalid character class range", pattern),
    }
}

fn fault(code: &str, expr: &str) -> String {
    format!("error parsing regexp: {code}: `{expr}`")
}

type Fault = (&'static str, String);

struct Translator<'a> {
    whole: &'a str,
    rest: &'a str,
    output: String,
}

impl<'a> Translator<'a> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn advance(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        taken
    }

    fn literal(&mut self, character: char) {
        if character.is_ascii_alphanumeric() || !character.is_ascii() || character == '_' || character == ' '
        {
            self.output.push(character);
        } else {
            let _ = write!(self.output, "\\x{{{:x}}}", character as u32);
        }
    }

    fn run(&mut self) -> Result<(), Fault> {
        let mut depth = 0usize;
        // Whether something precedes that can be repeated, and the repetition that was just read.
        let mut repeatable = false;
        let mut repetition: Option<&'a str> = None;
        while let Some(character) = self.peek() {
            let before = self.rest;
            if let Some(operator) = self.repetition()? {
                if let Some(previous) = repetition {
                    return Err(("invalid nested repetition operator", format!("{previous}{operator}")));
                }
                if !repeatable {
                    return Err(("missing argument to repetition operator", operator.to_owned()));
                }
                self.output.push_str(operator);
                repetition = Some(operator);
                continue;
            }
            repetition = None;
            repeatable = true;
            match character {
                '(' => {
                    depth += 1;
                    if depth > MAX_DEPTH {
                        return Err(("expression nests too deeply", self.whole.to_owned()));
                    }
                    // A group of flags alone opens nothing.
                    if !self.group()? {
                        depth -= 1;
                    }
                    repeatable = false;
                }
                ')' => {
                    if depth == 0 {
                        return Err(("unexpected )", self.whole.to_owned()));
                    }
                    depth -= 1;
                    self.advance(1);
                    self.output.push(')');
                }
                '|' => {
                    self.advance(1);
                    self.output.push('|');
                    repeatable = false;
                }
                '[' => self.class()?,
                '\\' => self.escape(before)?,
                '.' | '^' | '$' => {
                    self.advance(1);
                    self.output.push(character);
                }
                other => {
                    self.advance(other.len_utf8());
                    self.literal(other);
                }
            }
        }
        if depth > 0 {
            return Err(("missing closing )", self.whole.to_owned()));
        }
        Ok(())
    }

    /// Reads `*`, `+`, `?` or `{n,m}`, each perhaps with `?` behind. `None` for what is a literal after all.
    fn repetition(&mut self) -> Result<Option<&'a str>, Fault> {
        let length = match self.peek() {
            Some('*' | '+' | '?') => 1,
            Some('{') => match counted(self.rest) {
                Some((length, low, high)) => {
                    if low > MAX_REPEAT || high.is_some_and(|high| high > MAX_REPEAT || low > high) {
                        return Err(("invalid repeat count", self.rest[..length].to_owned()));
                    }
                    length
                }
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        let lazy = self.rest[length..].starts_with('?');
        Ok(Some(self.advance(length + usize::from(lazy))))
    }

    /// Reads what opens a group; whether one was opened.
    fn group(&mut self) -> Result<bool, Fault> {
        if !self.rest.starts_with("(?") {
            self.advance(1);
            self.output.push('(');
            return Ok(true);
        }
        for prefix in ["(?P<", "(?<"] {
            if let Some(after) = self.rest.strip_prefix(prefix) {
                if prefix == "(?<" && after.starts_with(['=', '!']) {
                    break;
                }
                let Some(end) = after.find('>') else {
                    return Err(("invalid named capture", self.rest.to_owned()));
                };
                let name = &after[..end];
                let valid = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
                if !valid {
                    return Err(("invalid named capture", format!("{prefix}{name}>")));
                }
                self.advance(prefix.len() + end + 1);
                // Names are of no use here, and Rust refuses some of Go's.
                self.output.push('(');
                return Ok(true);
            }
        }
        let mut characters = self.rest[2..].char_indices();
        let (mut negative, mut seen) = (false, false);
        for (index, character) in characters.by_ref() {
            let read = 2 + index + character.len_utf8();
            match character {
                'i' | 'm' | 's' | 'U' => seen = true,
                '-' if !negative => {
                    negative = true;
                    seen = false;
                }
                ':' | ')' if !negative || seen => {
                    let taken = self.advance(read);
                    self.output.push_str(taken);
                    return Ok(character == ':');
                }
                _ => return Err(("invalid or unsupported Perl syntax", self.rest[..read].to_owned())),
            }
        }
        Err(("missing closing )", self.whole.to_owned()))
    }

    fn escape(&mut self, before: &'a str) -> Result<(), Fault> {
        self.advance(1);
        let Some(character) = self.peek() else {
            return Err(("trailing backslash at end of expression", String::new()));
        };
        let replacement = match character {
            'A' => "\\A",
            'z' => "\\z",
            'b' => "(?-u:\\b)",
            'B' => "(?-u:\\B)",
            'd' => "[0-9]",
            'D' => "[^0-9]",
            's' => "[\\t\\n\\x0c\\r ]",
            'S' => "[^\\t\\n\\x0c\\r ]",
            'w' => "[0-9A-Za-z_]",
            'W' => "[^0-9A-Za-z_]",
            'Q' => {
                self.advance(1);
                let end = self.rest.find("\\E");
                let quoted = self.advance(end.unwrap_or(self.rest.len()));
                if end.is_some() {
                    self.advance(2);
                }
                for character in quoted.chars() {
                    self.literal(character);
                }
                return Ok(());
            }
            'p' | 'P' => {
                let class = self.unicode_class(before)?;
                self.output.push_str(&class);
                return Ok(());
            }
            _ => {
                let literal = self.escaped_character(before)?;
                self.literal(literal);
                return Ok(());
            }
        };
        self.advance(1);
        self.output.push_str(replacement);
        Ok(())
    }

    /// `\pL`, `\p{Greek}`, `\p{^Greek}` and their negations, after the backslash.
    fn unicode_class(&mut self, before: &'a str) -> Result<String, Fault> {
        let mut negated = self.advance(1) == "P";
        let bad = |length: usize| ("invalid character class range", before[..length].to_owned());
        let (name, length) = match self.rest.strip_prefix('{') {
            Some(after) => {
                let end = after.find('}').ok_or_else(|| bad(before.len()))?;
                (&after[..end], end + 2)
            }
            None => {
                let length = self.peek().ok_or_else(|| bad(before.len()))?.len_utf8();
                (&self.rest[..length], length)
            }
        };
        let whole = 2 + length;
        self.advance(length);
        let name = match name.strip_prefix('^') {
            Some(inner) => {
                negated = !negated;
                inner
            }
            None => name,
        };
        let valid = name.starts_with(|c: char| c.is_ascii_uppercase()) && is_go_class(name);
        if !valid {
            return Err(bad(whole));
        }
        Ok(format!("\\{}{{{name}}}", if negated { 'P' } else { 'p' }))
    }

    /// A character after a backslash that stands for one character.
    fn escaped_character(&mut self, before: &'a str) -> Result<char, Fault> {
        let Some(character) = self.peek() else {
            return Err(("trailing backslash at end of expression", String::new()));
        };
        let bad = |length: usize| ("invalid escape sequence", before[..length.min(before.len())].to_owned());
        let one = 1 + character.len_utf8();
        let simple = match character {
            'a' => '\u{7}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            'x' => return self.hex_escape(before),
            '0'..='7' => {
                let next_is_octal = self.rest[1..].starts_with(|c: char| ('0'..='7').contains(&c));
                if character != '0' && !next_is_octal {
                    return Err(bad(one));
                }
                let length =
                    self.rest.bytes().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
                let digits = self.advance(length);
                return u32::from_str_radix(digits, 8).ok().and_then(char::from_u32).ok_or_else(|| bad(one));
            }
            other if other.is_ascii() && !other.is_ascii_alphanumeric() => other,
            _ => return Err(bad(one)),
        };
        self.advance(character.len_utf8());
        Ok(simple)
    }

    fn hex_escape(&mut self, before: &'a str) -> Result<char, Fault> {
        let bad = |length: usize| ("invalid escape sequence", before[..length.min(before.len())].to_owned());
        self.advance(1);
        if let Some(after) = self.rest.strip_prefix('{') {
            let digits = after.bytes().take_while(u8::is_ascii_hexdigit).count();
            let code = u32::from_str_radix(&after[..digits], 16).ok().and_then(char::from_u32);
            let closed = after[digits..].starts_with('}');
            let Some(code) = code.filter(|_| closed) else {
                return Err(bad(3 + digits + after[digits..].chars().next().map_or(0, char::len_utf8)));
            };
            self.advance(digits + 2);
            return Ok(code);
        }
        let digits = self.rest.bytes().take(2).take_while(u8::is_ascii_hexdigit).count();
        if digits < 2 {
            let next = self.rest[digits..].chars().next().map_or(0, char::len_utf8);
            return Err(bad(2 + digits + next));
        }
        let code = u32::from_str_radix(self.advance(2), 16).ok().and_then(char::from_u32);
        code.ok_or_else(|| bad(4))
    }

    /// A bracketed class; Rust's own operators in it are escaped away.
    fn class(&mut self) -> Result<(), Fault> {
        let start = self.rest;
        self.advance(1);
        self.output.push('[');
        if self.rest.starts_with('^') {
            self.advance(1);
            self.output.push('^');
        }
        let mut first = true;
        loop {
            let Some(character) = self.peek() else { return Err(("missing closing ]", start.to_owned())) };
            if character == ']' && !first {
                self.advance(1);
                self.output.push(']');
                return Ok(());
            }
            // A dash is itself at the ends, and nowhere else.
            if character == '-' && !first && self.rest.len() > 1 && !self.rest[1..].starts_with(']') {
                let next = self.rest[1..].chars().next().map_or(0, char::len_utf8);
                return Err(("invalid character class range", self.rest[..1 + next].to_owned()));
            }
            first = false;
            if self.class_group()? {
                continue;
            }
            let low_start = self.rest;
            let low = self.class_character(start)?;
            let is_range =
                self.rest.starts_with('-') && self.rest.len() > 1 && !self.rest[1..].starts_with(']');
            self.literal(low);
            if is_range {
                self.advance(1);
                let high = self.class_character(start)?;
                if high < low {
                    let length = low_start.len() - self.rest.len();
                    return Err(("invalid character class range", low_start[..length].to_owned()));
                }
                self.output.push('-');
                self.literal(high);
            }
        }
    }

    /// `[:alpha:]`, `\d` or `\pL` inside of a class.
    fn class_group(&mut self) -> Result<bool, Fault> {
        if self.rest.starts_with("[:")
            && let Some(end) = self.rest[2..].find(":]")
        {
            let name = &self.rest[..end + 4];
            const NAMES: &[&str] = &[
                "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
                "space", "upper", "word", "xdigit",
            ];
            let inner = self.rest[2..end + 2].trim_start_matches('^');
            if !NAMES.contains(&inner) {
                return Err(("invalid character class range", name.to_owned()));
            }
            let taken = self.advance(end + 4);
            self.output.push_str(taken);
            return Ok(true);
        }
        let replacement = match self.rest.as_bytes() {
            [b'\\', b'd', ..] => "0-9",
            [b'\\', b'D', ..] => "[^0-9]",
            [b'\\', b's', ..] => "\\t\\n\\x0c\\r ",
            [b'\\', b'S', ..] => "[^\\t\\n\\x0c\\r ]",
            [b'\\', b'w', ..] => "0-9A-Za-z_",
            [b'\\', b'W', ..] => "[^0-9A-Za-z_]",
            [b'\\', b'p' | b'P', ..] => {
                let before = self.rest;
                self.advance(1);
                let class = self.unicode_class(before)?;
                self.output.push_str(&class);
                return Ok(true);
            }
            _ => return Ok(false),
        };
        self.advance(2);
        self.output.push_str(replacement);
        Ok(true)
    }

    fn class_character(&mut self, start: &'a str) -> Result<char, Fault> {
        match self.peek() {
            None => Err(("missing closing ]", start.to_owned())),
            Some('\\') => {
                let before = self.rest;
                self.advance(1);
                self.escaped_character(before)
            }
            Some(character) => {
                self.advance(character.len_utf8());
                Ok(character)
            }
        }
    }
}

/// `{n}`, `{n,}` or `{n,m}`: its length and bounds.
fn counted(text: &str) -> Option<(usize, u32, Option<u32>)> {
    let end = text.find('}')?;
    let inner = &text[1..end];
    // Larger numbers than fit are too large anyway; leading zeros make it no count.
    let number = |digits: &str| {
        let valid = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let plain = digits.len() == 1 || !digits.starts_with('0');
        (valid && plain).then(|| digits.parse().unwrap_or(u32::MAX))
    };
    let (low, high) = match inner.split_once(',') {
        None => {
            let count = number(inner)?;
            (count, Some(count))
        }
        Some((low, "")) => (number(low)?, None),
        Some((low, high)) => (number(low)?, Some(number(high)?)),
    };
    Some((end + 1, low, high))
}

/// Go knows general categories by their short names, scripts, and `Any`.
fn is_go_class(name: &str) -> bool {
    const CATEGORIES: &[&str] = &[
        "Any", "C", "Cc", "Cf", "Co", "Cs", "L", "Ll", "Lm", "Lo", "Lt", "Lu", "M", "Mc", "Me", "Mn", "N",
        "Nd", "Nl", "No", "P", "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S", "Sc", "Sk", "Sm", "So", "Z",
        "Zl", "Zp", "Zs",
    ];
    CATEGORIES.contains(&name)
        || (name.len() > 2 && regex_syntax::parse(&format!("\\p{{Script={name}}}")).is_ok())
}
