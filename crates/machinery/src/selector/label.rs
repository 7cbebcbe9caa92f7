//! `a=b,c!=d,e in (x,y),f notin (z),g,!h,i>1`

use std::{collections::BTreeSet, fmt};

use compact_str::CompactString;
use serde_json::Value;
use smallvec::{SmallVec, smallvec};

use crate::{field_error::Cause, gotext, metadata, names};

const BINARY_OPERATORS: &str = "in, notin, =, ==, !=, gt, lt";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    Equals,
    DoubleEquals,
    NotEquals,
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

/// One condition on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    key: CompactString,
    operator: Operator,
    values: SmallVec<[CompactString; 1]>,
}

/// All requirements must hold. No requirements: everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
    nothing: bool,
}

impl LabelSelector {
    /// Selects every object.
    pub fn everything() -> Self {
        Self::default()
    }

    /// Selects no object: what an absent selector in a spec means.
    pub fn nothing() -> Self {
        Self { requirements: Vec::new(), nothing: true }
    }

    /// Reads what clients write in a query.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser { tokens: scan(text), position: 0 };
        Ok(Self::of(parser.selector()?))
    }

    /// Reads the object of type `LabelSelector` that specs hold; `null` selects nothing, `{}` everything.
    pub fn from_object(object: &Value) -> Result<Self, String> {
        let Some(object) = object.as_object() else { return Ok(Self::nothing()) };
        let labels = object.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
        let expressions = object.get("matchExpressions").and_then(Value::as_array).into_iter().flatten();
        let mut requirements = Vec::new();
        for (key, value) in labels {
            let values = smallvec![value.as_str().unwrap_or_default().into()];
            requirements.push(Requirement::new(key, Operator::Equals, values)?);
        }
        for expression in expressions {
            requirements.push(Requirement::from_object(expression)?);
        }
        Ok(Self::of(requirements))
    }

    /// Selects objects that carry all of `labels`, as the plain maps in Services and ReplicationControllers do.
    pub fn from_labels<'a>(labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let exactly = |(key, value): (&str, &str)| Requirement {
            key: key.into(),
            operator: Operator::Equals,
            values: smallvec![value.into()],
        };
        Self::of(labels.into_iter().map(exactly).collect())
    }

    /// Selects what both do.
    pub fn and(mut self, other: LabelSelector) -> Self {
        self.requirements.extend(other.requirements);
        Self { nothing: self.nothing || other.nothing, ..Self::of(self.requirements) }
    }

    /// Selects objects for which all of them hold.
    pub fn of(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Self { requirements, nothing: false }
    }

    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty() && !self.nothing
    }

    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    pub fn matches(&self, labels: &[(CompactString, CompactString)]) -> bool {
        !self.nothing && self.requirements.iter().all(|requirement| requirement.matches(labels))
    }

    /// The one value that label `key` must have, if the selector says so.
    pub fn exact(&self, key: &str) -> Option<&str> {
        let requirement = self.requirements.iter().find(|requirement| requirement.key == key)?;
        match (requirement.operator, requirement.values.as_slice()) {
            (Operator::Equals | Operator::DoubleEquals | Operator::In, [value]) => Some(value),
            _ => None,
        }
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, requirement) in self.requirements.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{requirement}")?;
        }
        Ok(())
    }
}

impl Requirement {
    /// The reasons why a requirement cannot be are joined as upstream joins them.
    pub fn new(key: &str, operator: Operator, values: SmallVec<[CompactString; 1]>) -> Result<Self, String> {
        let mut mistakes: Vec<String> = key_mistake(key, "key").into_iter().collect();
        mistakes.extend(count_mistake(operator, &values));
        if matches!(operator, Operator::GreaterThan | Operator::LessThan) {
            let odd = values.iter().enumerate().filter(|(_, value)| value.parse::<i64>().is_err());
            mistakes.extend(odd.map(|(at, value)| {
                let value = gotext::quote(value);
                format!("values[{at}]: Invalid value: {value}: for 'Gt', 'Lt' operators, the value must be an integer")
            }));
        }
        for (at, value) in values.iter().enumerate() {
            let reasons = names::is_label_value(value);
            if !reasons.is_empty() {
                let (value, reasons) = (gotext::quote(value), reasons.join("; "));
                mistakes.push(format!("values[{at}][{key}]: Invalid value: {value}: {reasons}"));
            }
        }
        let mut seen = BTreeSet::new();
        mistakes.retain(|mistake| seen.insert(mistake.clone()));
        match mistakes.as_slice() {
            [] => Ok(Self { key: key.into(), operator, values }),
            [one] => Err(one.clone()),
            many => Err(format!("[{}]", many.join(", "))),
        }
    }

    fn from_object(expression: &Value) -> Result<Self, String> {
        let text = |field: &str| expression.get(field).and_then(Value::as_str).unwrap_or_default();
        let operator = match text("operator") {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            other => return Err(format!("{} is not a valid label selector operator", gotext::quote(other))),
        };
        let values = expression.get("values").and_then(Value::as_array).into_iter().flatten();
        let values = values.map(|value| value.as_str().unwrap_or_default().into()).collect();
        Self::new(text("key"), operator, values)
    }

    pub fn key(&self) -> &str {
        &self.key
    }

    pub fn operator(&self) -> Operator {
        self.operator
    }

    pub fn values(&self) -> &[CompactString] {
        &self.values
    }

    pub fn matches(&self, labels: &[(CompactString, CompactString)]) -> bool {
        let found = labels.iter().find(|(key, _)| *key == self.key).map(|(_, value)| value);
        match self.operator {
            Operator::Exists => found.is_some(),
            Operator::DoesNotExist => found.is_none(),
            Operator::Equals | Operator::DoubleEquals | Operator::In => {
                found.is_some_and(|value| self.values.contains(value))
            }
            Operator::NotEquals | Operator::NotIn => !found.is_some_and(|value| self.values.contains(value)),
            Operator::GreaterThan => self.compares(found, |label, bound| label > bound),
            Operator::LessThan => self.compares(found, |label, bound| label < bound),
        }
    }

    fn compares(&self, label: Option<&CompactString>, holds: fn(i64, i64) -> bool) -> bool {
        let label = label.and_then(|label| label.parse().ok());
        let bound = self.values.first().and_then(|bound| bound.parse().ok());
        label.zip(bound).is_some_and(|(label, bound)| holds(label, bound))
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        let mut values: Vec<&str> = self.values.iter().map(CompactString::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        match self.operator {
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::DoubleEquals => write!(f, "{key}=={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Exists => write!(f, "{key}"),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

fn key_mistake(key: &str, path: &str) -> Option<String> {
    let reasons = names::is_qualified_name(key);
    (!reasons.is_empty())
        .then(|| format!("{path}: Invalid value: {}: {}", gotext::quote(key), reasons.join("; ")))
}

fn count_mistake(operator: Operator, values: &[CompactString]) -> Option<String> {
    let (fits, detail) = match operator {
        Operator::In | Operator::NotIn => {
            (!values.is_empty(), "for 'in', 'notin' operators, values set can't be empty")
        }
        Operator::Equals | Operator::DoubleEquals | Operator::NotEquals => {
            (values.len() == 1, "exact-match compatibility requires one single value")
        }
        Operator::Exists | Operator::DoesNotExist => {
            (values.is_empty(), "values set must be empty for exists and does not exist")
        }
        Operator::GreaterThan | Operator::LessThan => {
            (values.len() == 1, "for 'Gt', 'Lt' operators, exactly one value is required")
        }
    };
    // An empty list in Go is `null` here.
    let shown = if values.is_empty() { "null".to_owned() } else { gotext::json(values) };
    (!fits).then(|| format!("values: Invalid value: {shown}: {detail}"))
}

/// Checks an object of type `LabelSelector` inside a spec.
pub fn validate_object(object: &Value, field: &str) -> Vec<Cause> {
    validate_object_with(object, field, false)
}

/// As [`validate_object`]; with `any_value`, expressions may name values that no label can have, as stored ones did.
pub fn validate_object_with(object: &Value, field: &str, any_value: bool) -> Vec<Cause> {
    let mut causes = metadata::labels(object.get("matchLabels"), &format!("{field}.matchLabels"));
    let expressions = object.get("matchExpressions").and_then(Value::as_array).into_iter().flatten();
    for (at, expression) in expressions.enumerate() {
        let field = format!("{field}.matchExpressions[{at}]");
        causes.extend(validate_expression(expression, &field, any_value));
    }
    causes
}

fn validate_expression(expression: &Value, field: &str, any_value: bool) -> Vec<Cause> {
    let mut causes = Vec::new();
    let text = |name: &str| expression.get(name).and_then(Value::as_str).unwrap_or_default();
    let values = expression.get("values").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    match text("operator") {
        "In" | "NotIn" if values.is_empty() => {
            let detail = "must be specified when `operator` is 'In' or 'NotIn'";
            causes.push(Cause::required(format!("{field}.values"), detail));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            causes.push(Cause::forbidden(format!("{field}.values"), detail));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => {
            causes.push(Cause::invalid(
                format!("{field}.operator"),
                &other.into(),
                "not a valid selector operator",
            ));
        }
    }
    let key = text("key");
    for reason in names::is_qualified_name(key) {
        causes.push(Cause::invalid(format!("{field}.key"), &key.into(), &reason));
    }
    let checked = if any_value { &[][..] } else { values };
    for (at, value) in checked.iter().enumerate() {
        for reason in names::is_label_value(value.as_str().unwrap_or_default()) {
            causes.push(Cause::invalid(format!("{field}.values[{at}]"), value, &reason));
        }
    }
    causes
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    End,
    Close,
    Comma,
    Not,
    DoubleEquals,
    Equals,
    Greater,
    Identifier,
    In,
    Less,
    NotEquals,
    NotIn,
    Open,
}

#[derive(Clone, Copy)]
struct Token<'a> {
    kind: Kind,
    text: &'a str,
}

impl Token<'_> {
    const END: Token<'static> = Token { kind: Kind::End, text: "" };

    /// Where a key or a value is expected, `in` and `notin` are words like others.
    fn as_value(self) -> Self {
        match self.kind {
            Kind::In | Kind::NotIn => Token { kind: Kind::Identifier, ..self },
            _ => self,
        }
    }
}

fn is_symbol(byte: u8) -> bool {
    matches!(byte, b'=' | b'!' | b'(' | b')' | b',' | b'>' | b'<')
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

fn scan(text: &str) -> Vec<Token<'_>> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        match bytes[at] {
            byte if is_space(byte) => {
                at += 1;
                continue;
            }
            // Upstream's scanner takes a zero byte for the end.
            0 => break,
            byte if is_symbol(byte) => {
                let double = matches!(bytes.get(at..at + 2), Some(b"==" | b"!="));
                at += if double { 2 } else { 1 };
            }
            _ => {
                let ends = |byte: &u8| is_symbol(*byte) || is_space(*byte) || *byte == 0;
                at = bytes[at..].iter().position(ends).map_or(bytes.len(), |len| at + len);
            }
        }
        let text = &text[start..at];
        tokens.push(Token { kind: kind_of(text), text });
    }
    tokens
}

fn kind_of(text: &str) -> Kind {
    match text {
        ")" => Kind::Close,
        "," => Kind::Comma,
        "!" => Kind::Not,
        "==" => Kind::DoubleEquals,
        "=" => Kind::Equals,
        ">" => Kind::Greater,
        "in" => Kind::In,
        "<" => Kind::Less,
        "!=" => Kind::NotEquals,
        "notin" => Kind::NotIn,
        "(" => Kind::Open,
        _ => Kind::Identifier,
    }
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    position: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        self.tokens.get(self.position).copied().unwrap_or(Token::END).as_value()
    }

    fn next_raw(&mut self) -> Token<'a> {
        self.position += 1;
        self.tokens.get(self.position - 1).copied().unwrap_or(Token::END)
    }

    fn next(&mut self) -> Token<'a> {
        self.next_raw().as_value()
    }

    fn selector(&mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        match self.peek() {
            Token { kind: Kind::End, .. } => return Ok(requirements),
            Token { kind: Kind::Identifier | Kind::Not, .. } => {}
            Token { text, .. } => {
                return Err(format!("found '{text}', expected: !, identifier, or 'end of string'"));
            }
        }
        loop {
            let requirement = self.requirement().map_err(|e| format!("unable to parse requirement: {e}"))?;
            requirements.push(requirement);
            match self.next() {
                Token { kind: Kind::End, .. } => return Ok(requirements),
                Token { kind: Kind::Comma, .. } => {}
                Token { text, .. } => {
                    return Err(format!("found '{text}', expected: ',' or 'end of string'"));
                }
            }
            let Token { kind, text } = self.peek();
            if !matches!(kind, Kind::Identifier | Kind::Not) {
                return Err(format!("found '{text}', expected: identifier after ','"));
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let mut token = self.next();
        let negated = token.kind == Kind::Not;
        if negated {
            token = self.next();
        }
        if token.kind != Kind::Identifier {
            return Err(format!("found '{}', expected: identifier", token.text));
        }
        let key = token.text;
        if let Some(mistake) = key_mistake(key, "<nil>") {
            return Err(mistake);
        }
        if negated {
            return Requirement::new(key, Operator::DoesNotExist, SmallVec::new());
        }
        if matches!(self.peek().kind, Kind::End | Kind::Comma) {
            return Requirement::new(key, Operator::Exists, SmallVec::new());
        }
        let operator = self.operator()?;
        let values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            _ => smallvec![self.exact_value()?.into()],
        };
        Requirement::new(key, operator, values)
    }

    fn operator(&mut self) -> Result<Operator, String> {
        let token = self.next_raw();
        Ok(match token.kind {
            Kind::In => Operator::In,
            Kind::NotIn => Operator::NotIn,
            Kind::Equals => Operator::Equals,
            Kind::DoubleEquals => Operator::DoubleEquals,
            Kind::NotEquals => Operator::NotEquals,
            Kind::Greater => Operator::GreaterThan,
            Kind::Less => Operator::LessThan,
            _ => return Err(format!("found '{}', expected: {BINARY_OPERATORS}", token.text)),
        })
    }

    /// `(a,b)`, sorted, each once; between two commas stands the empty value.
    fn values(&mut self) -> Result<SmallVec<[CompactString; 1]>, String> {
        let open = self.next();
        if open.kind != Kind::Open {
            return Err(format!("found '{}' expected: '('", open.text));
        }
        let mut values = BTreeSet::new();
        match self.peek() {
            Token { kind: Kind::Identifier | Kind::Comma, .. } => self.value_list(&mut values)?,
            Token { kind: Kind::Close, .. } => drop(values.insert("")),
            Token { text, .. } => return Err(format!("found '{text}', expected: ',', ')' or identifier")),
        }
        self.next();
        Ok(values.into_iter().map(CompactString::from).collect())
    }

    /// Up to, and without, the closing parenthesis.
    fn value_list(&mut self, values: &mut BTreeSet<&'a str>) -> Result<(), String> {
        loop {
            let token = self.next();
            match token.kind {
                Kind::Identifier => {
                    values.insert(token.text);
                    match self.peek() {
                        Token { kind: Kind::Comma, .. } => {}
                        Token { kind: Kind::Close, .. } => return Ok(()),
                        Token { text, .. } => return Err(format!("found '{text}', expected: ',' or ')'")),
                    }
                }
                Kind::Comma => {
                    let after = self.peek().kind;
                    if values.is_empty() || matches!(after, Kind::Close | Kind::Comma) {
                        values.insert("");
                    }
                    if after == Kind::Close {
                        return Ok(());
                    }
                }
                _ => return Err(format!("found '{}', expected: ',', or identifier", token.text)),
            }
        }
    }

    fn exact_value(&mut self) -> Result<&'a str, String> {
        if matches!(self.peek().kind, Kind::End | Kind::Comma) {
            return Ok("");
        }
        let token = self.next();
        if token.kind != Kind::Identifier {
            return Err(format!("found '{}', expected: identifier", token.text));
        }
        Ok(token.text)
    }
}

#[cfg(test)]
mod tests;
