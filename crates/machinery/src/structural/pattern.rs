//! Regular expressions as Go reads them, matched by the `regex` crate.
//!
//! A pattern is parsed by Go's rules, refused in Go's words, and written anew in the dialect of the crate: there `\d`
//! would mean Unicode, `[a&&b]` a set operation, and `{` no letter.

use std::sync::OnceLock;

use regex::bytes::{Regex, RegexBuilder};

const MAX_REPEAT: u32 = 1000;
/// How many groups may stand in one another, as in Go.
const MAX_NESTING: usize = 1000;

/// A pattern, compiled when it is first needed.
#[derive(Clone, Debug)]
pub struct Pattern {
    pub text: String,
    compiled: OnceLock<Result<Regex, String>>,
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Pattern {
    pub fn new(text: String) -> Self {
        Self { text, compiled: OnceLock::new() }
    }

    /// Whether the pattern is found anywhere in `text`; else why it is no pattern.
    pub fn is_found_in(&self, text: &str) -> Result<bool, &str> {
        match self.compiled.get_or_init(|| compile(&self.text)) {
            Ok(regex) => Ok(regex.is_match(text.as_bytes())),
            Err(error) => Err(error),
        }
    }

    /// Why it is no pattern, in Go's words.
    pub fn error(&self) -> Option<&str> {
        self.is_found_in("").err()
    }
}

fn compile(text: &str) -> Result<Regex, String> {
    let translated = Translator::new(text).translate()?;
    // Bytes, since a boundary that counts ASCII letters may lie inside of a character.
    let built = RegexBuilder::new(&translated).nest_limit(4 * MAX_NESTING as u32).build();
    built.map_err(|_| fail("expression too large", text))
}

fn fail(what: &str, expression: &str) -> String {
    format!("error parsing regexp: {what}: `{expression}`")
}

type Parse<T = ()> = Result<T, String>;

/// What may be repeated, at the current end of a group.
#[derive(Clone, Copy, Default)]
struct Operand {
    /// The largest product of counts of repetitions inside of it.
    weight: u32,
}

struct Translator<'t> {
    whole: &'t str,
    rest: &'t str,
    out: String,
    /// Of each open group: the operand before it, and the weight of what is in it so far.
    groups: Vec<u32>,
    operand: Option<Operand>,
    /// The largest weight of the current group.
    weight: u32,
}

const DIGITS: &str = "0-9";
const SPACES: &str = r"\t\n\x0C\r\x20";
const WORDS: &str = "0-9A-Za-z_";

impl<'t> Translator<'t> {
    fn new(whole: &'t str) -> Self {
        Self { whole, rest: whole, out: String::new(), groups: Vec::new(), operand: None, weight: 1 }
    }

    fn translate(mut self) -> Parse<String> {
        let mut last_repeat: Option<&'t str> = None;
        while let Some(c) = self.rest.chars().next() {
            let before = self.rest;
            let repeated = match c {
                '(' => self.open().map(|()| false)?,
                ')' => self.close().map(|()| false)?,
                '|' => {
                    self.take(1);
                    self.out.push('|');
                    self.operand = None;
                    false
                }
                '^' | '$' | '.' => {
                    self.take(1);
                    self.atom(&c.to_string());
                    false
                }
                '[' => self.class().map(|()| false)?,
                '*' | '+' | '?' => {
                    self.take(1);
                    self.repeat(before, last_repeat, &c.to_string(), 1)?;
                    true
                }
                '{' => self.counted(before, last_repeat)?,
                '\\' => self.escaped().map(|()| false)?,
                c => {
                    self.take(c.len_utf8());
                    self.literal(c);
                    false
                }
            };
            last_repeat = repeated.then_some(before);
        }
        if !self.groups.is_empty() {
            return Err(fail("missing closing )", self.whole));
        }
        Ok(self.out)
    }

    fn take(&mut self, bytes: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        taken
    }

    /// What of `from` has been read since.
    fn since(&self, from: &'t str) -> &'t str {
        &from[..from.len() - self.rest.len()]
    }

    fn atom(&mut self, text: &str) {
        self.out.push_str(text);
        self.operand = Some(Operand { weight: 1 });
    }

    fn literal(&mut self, c: char) {
        push_char(&mut self.out, c);
        self.operand = Some(Operand { weight: 1 });
    }

    fn repeat(&mut self, before: &'t str, last: Option<&'t str>, operator: &str, count: u32) -> Parse {
        let lazy = self.rest.starts_with('?');
        if lazy {
            self.take(1);
        }
        if let Some(last) = last {
            return Err(fail("invalid nested repetition operator", self.since(last)));
        }
        let Some(operand) = self.operand else {
            return Err(fail("missing argument to repetition operator", self.since(before)));
        };
        let weight = operand.weight.saturating_mul(count.max(1));
        if count > 1 && weight > MAX_REPEAT {
            return Err(fail("invalid repeat count", self.since(before)));
        }
        self.out.push_str(operator);
        if lazy {
            self.out.push('?');
        }
        self.operand = Some(Operand { weight });
        self.weight = self.weight.max(weight);
        Ok(())
    }

    /// `{n,m}`; anything else that begins with a brace is a literal one. Says whether it was a repetition.
    fn counted(&mut self, before: &'t str, last: Option<&'t str>) -> Parse<bool> {
        let Some((min, max, len)) = counts(before) else {
            self.take(1);
            self.literal('{');
            return Ok(false);
        };
        self.take(len);
        let too_many = |count: Option<u32>| count.is_none_or(|count| count > MAX_REPEAT);
        let max_is_bad = match max {
            Max::Unbounded => false,
            Max::Count(max) => too_many(max) || max < min,
        };
        if too_many(min) || max_is_bad {
            return Err(fail("invalid repeat count", self.since(before)));
        }
        let min = min.unwrap_or_default();
        let (operator, count) = match max {
            Max::Unbounded => (format!("{{{min},}}"), min),
            Max::Count(max) => (format!("{{{min},{}}}", max.unwrap_or(min)), max.unwrap_or(min)),
        };
        self.repeat(before, last, &operator, count)?;
        Ok(true)
    }

    fn open(&mut self) -> Parse {
        if self.groups.len() >= MAX_NESTING {
            return Err(fail("expression nests too deeply", self.whole));
        }
        if !self.rest.starts_with("(?") {
            self.take(1);
            self.push_group("(?:");
            return Ok(());
        }
        let before = self.rest;
        for prefix in ["(?P<", "(?<"] {
            if let Some(after) = before.strip_prefix(prefix) {
                let Some(end) = after.find('>') else { return Err(fail("invalid named capture", before)) };
                let name = &after[..end];
                self.take(prefix.len() + end + 1);
                let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
                if name.is_empty() || !name.bytes().all(is_word) {
                    return Err(fail("invalid named capture", self.since(before)));
                }
                self.push_group("(?:");
                return Ok(());
            }
        }
        self.flags(before)
    }

    /// `(?i-s)` or `(?i-s:`
    fn flags(&mut self, before: &'t str) -> Parse {
        self.take(2);
        let (mut negative, mut any) = (false, false);
        while let Some(c) = self.rest.chars().next() {
            self.take(c.len_utf8());
            match c {
                'i' | 'm' | 's' | 'U' => any = true,
                '-' if !negative => (negative, any) = (true, false),
                ':' | ')' if !negative || any => {
                    let text = self.since(before);
                    if c == ':' {
                        self.push_group(text);
                    } else if text != "(?)" {
                        self.out.push_str(text);
                    }
                    return Ok(());
                }
                _ => break,
            }
        }
        Err(fail("invalid or unsupported Perl syntax", self.since(before)))
    }

    fn push_group(&mut self, text: &str) {
        self.out.push_str(text);
        self.groups.push(self.weight);
        self.weight = 1;
        self.operand = None;
    }

    fn close(&mut self) -> Parse {
        let Some(outer) = self.groups.pop() else { return Err(fail("unexpected )", self.whole)) };
        self.take(1);
        self.out.push(')');
        self.operand = Some(Operand { weight: self.weight });
        self.weight = self.weight.max(outer);
        Ok(())
    }

    fn escaped(&mut self) -> Parse {
        let mut chars = self.rest.chars().skip(1);
        match chars.next() {
            Some('A') => self.taken_atom(2, r"\A"),
            Some('b') => self.taken_atom(2, r"(?-u:\b)"),
            Some('B') => self.taken_atom(2, r"(?-u:\B)"),
            Some('z') => self.taken_atom(2, r"\z"),
            Some('C') => return Err(fail("invalid escape sequence", r"\C")),
            Some('Q') => self.quoted(),
            Some('p' | 'P') => {
                let class = self.unicode_class()?;
                self.atom(&class);
            }
            Some(c) if perl_class(c).is_some() => {
                let class = perl_class(c).unwrap_or_default();
                self.taken_atom(2, &class);
            }
            _ => {
                let c = self.escape()?;
                self.literal(c);
            }
        }
        Ok(())
    }

    fn taken_atom(&mut self, bytes: usize, text: &str) {
        self.take(bytes);
        self.atom(text);
    }

    /// `\Q…\E`: what is between is literal.
    fn quoted(&mut self) {
        self.take(2);
        let (text, after) = self.rest.split_once(r"\E").unwrap_or((self.rest, ""));
        self.rest = after;
        text.chars().for_each(|c| self.literal(c));
    }

    /// `\pL`, `\p{Greek}`, `\P{^Greek}`
    fn unicode_class(&mut self) -> Parse<String> {
        let before = self.rest;
        let mut negative = self.take(2) == r"\P";
        let Some(first) = self.rest.chars().next() else {
            return Err(fail("invalid character class range", before));
        };
        let mut name = self.take(first.len_utf8());
        if first == '{' {
            let Some(end) = self.rest.find('}') else {
                return Err(fail("invalid character class range", before));
            };
            name = self.take(end);
            self.take(1);
        }
        if let Some(positive) = name.strip_prefix('^') {
            negative = !negative;
            name = positive;
        }
        let letter = if negative { 'P' } else { 'p' };
        let text = match name {
            "Any" => format!(r"\{letter}{{Any}}"),
            name if is_category(name) => format!(r"\{letter}{{gc={name}}}"),
            name => format!(r"\{letter}{{sc={name}}}"),
        };
        let is_name = name.starts_with(|c: char| c.is_ascii_uppercase())
            && name.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_');
        if !is_name || regex::Regex::new(&text).is_err() {
            return Err(fail("invalid character class range", self.since(before)));
        }
        Ok(text)
    }

    /// One character after a backslash.
    fn escape(&mut self) -> Parse<char> {
        let before = self.rest;
        self.take(1);
        let Some(c) = self.rest.chars().next() else {
            return Err(fail("trailing backslash at end of expression", ""));
        };
        self.take(c.len_utf8());
        let found = match c {
            '1'..='7' if !self.rest.starts_with(|next| matches!(next, '0'..='7')) => None,
            '0'..='7' => Some(self.octal(c)),
            'x' => self.hexadecimal(),
            'a' => Some('\x07'),
            'f' => Some('\x0c'),
            'n' => Some('\n'),
            'r' => Some('\r'),
            't' => Some('\t'),
            'v' => Some('\x0b'),
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => Some(c),
            _ => None,
        };
        found.ok_or_else(|| fail("invalid escape sequence", self.since(before)))
    }

    fn octal(&mut self, first: char) -> char {
        let mut value = first.to_digit(8).unwrap_or(0);
        for _ in 1..3 {
            let Some(digit) = self.rest.chars().next().and_then(|c| c.to_digit(8)) else { break };
            self.take(1);
            value = value * 8 + digit;
        }
        char::from_u32(value).unwrap_or('\u{fffd}')
    }

    fn hexadecimal(&mut self) -> Option<char> {
        if !self.rest.starts_with('{') {
            let mut value = 0;
            for _ in 0..2 {
                let c = self.rest.chars().next()?;
                self.take(c.len_utf8());
                value = value * 16 + c.to_digit(16)?;
            }
            return char::from_u32(value);
        }
        self.take(1);
        let (mut value, mut digits) = (0u32, 0);
        loop {
            let c = self.rest.chars().next()?;
            self.take(c.len_utf8());
            if c == '}' {
                return char::from_u32(value).filter(|_| digits > 0);
            }
            value =
                value.checked_mul(16)?.checked_add(c.to_digit(16)?).filter(|value| *value <= 0x10_ffff)?;
            digits += 1;
        }
    }

    fn class(&mut self) -> Parse {
        let before = self.rest;
        self.take(1);
        let mut out = "[".to_owned();
        if self.rest.starts_with('^') {
            self.take(1);
            out.push('^');
        }
        let mut first = true;
        while first || !self.rest.starts_with(']') {
            first = false;
            self.class_item(before, &mut out)?;
        }
        self.take(1);
        out.push(']');
        self.atom(&out);
        Ok(())
    }

    fn class_item(&mut self, class: &'t str, out: &mut String) -> Parse {
        if let Some((name, len)) = posix_class(self.rest) {
            let text = self.take(len);
            if !is_posix_name(name.strip_prefix('^').unwrap_or(name)) {
                return Err(fail("invalid character class range", text));
            }
            out.push_str(text);
            return Ok(());
        }
        let escaped = self.rest.strip_prefix('\\').and_then(|rest| rest.chars().next());
        match escaped {
            Some('p' | 'P') => {
                let text = self.unicode_class()?;
                out.push_str(&text);
                return Ok(());
            }
            Some(c) => {
                if let Some(text) = perl_class(c) {
                    self.take(2);
                    out.push_str(&text);
                    return Ok(());
                }
            }
            None => {}
        }
        let range = self.rest;
        let low = self.class_char(class)?;
        let mut high = low;
        if self.rest.len() >= 2 && self.rest.starts_with('-') && !self.rest.starts_with("-]") {
            self.take(1);
            high = self.class_char(class)?;
            if high < low {
                return Err(fail("invalid character class range", self.since(range)));
            }
        }
        push_char(out, low);
        if high != low {
            out.push('-');
            push_char(out, high);
        }
        Ok(())
    }

    fn class_char(&mut self, class: &'t str) -> Parse<char> {
        match self.rest.chars().next() {
            None => Err(fail("missing closing ]", class)),
            Some('\\') => self.escape(),
            Some(c) => {
                self.take(c.len_utf8());
                Ok(c)
            }
        }
    }
}

/// In a spelling that means itself inside and outside of classes.
fn push_char(out: &mut String, c: char) {
    if c.is_ascii_alphanumeric() || !c.is_ascii() {
        out.push(c);
    } else {
        out.push_str(&format!("\\x{:02X}", c as u32));
    }
}

enum Max {
    Unbounded,
    /// `None` where the number is too large to read.
    Count(Option<u32>),
}

/// Reads `{2}`, `{2,}` and `{2,5}`: the counts and the length of the text.
fn counts(text: &str) -> Option<(Option<u32>, Max, usize)> {
    let end = text.find('}')?;
    let inside = &text[1..end];
    let (min, max) = match inside.split_once(',') {
        None => (count(inside)?, Max::Count(count(inside)?)),
        Some((min, "")) => (count(min)?, Max::Unbounded),
        Some((min, max)) => (count(min)?, Max::Count(count(max)?)),
    };
    Some((min, max, end + 1))
}

/// The inner `None` is a number that is too large.
fn count(text: &str) -> Option<Option<u32>> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let padded = text.len() > 1 && text.starts_with('0');
    (is_number && !padded).then(|| text.parse().ok().filter(|count| *count < 100_000_000))
}

fn perl_class(c: char) -> Option<String> {
    Some(match c {
        'd' => format!("[{DIGITS}]"),
        'D' => format!("[^{DIGITS}]"),
        's' => format!("[{SPACES}]"),
        'S' => format!("[^{SPACES}]"),
        'w' => format!("[{WORDS}]"),
        'W' => format!("[^{WORDS}]"),
        _ => return None,
    })
}

/// `[:alpha:]` at the start of `text`: the name and the length.
fn posix_class(text: &str) -> Option<(&str, usize)> {
    let inside = text.strip_prefix("[:")?;
    let end = inside.find(":]")?;
    Some((&inside[..end], end + 4))
}

fn is_posix_name(name: &str) -> bool {
    matches!(
        name,
        "alnum"
            | "alpha"
            | "ascii"
            | "blank"
            | "cntrl"
            | "digit"
            | "graph"
            | "lower"
            | "print"
            | "punct"
            | "space"
            | "upper"
            | "word"
            | "xdigit"
    )
}

fn is_category(name: &str) -> bool {
    matches!(
        name,
        "C" | "Cc"
            | "Cf"
            | "Cn"
            | "Co"
            | "Cs"
            | "L"
            | "LC"
            | "Ll"
            | "Lm"
            | "Lo"
            | "Lt"
            | "Lu"
            | "M"
            | "Mc"
            | "Me"
            | "Mn"
            | "N"
            | "Nd"
            | "Nl"
            | "No"
            | "P"
            | "Pc"
            | "Pd"
            | "Pe"
            | "Pf"
            | "Pi"
            | "Po"
            | "Ps"
            | "S"
            | "Sc"
            | "Sk"
            | "Sm"
            | "So"
            | "Z"
            | "Zl"
            | "Zp"
            | "Zs"
    )
}

#[cfg(test)]
mod tests;
