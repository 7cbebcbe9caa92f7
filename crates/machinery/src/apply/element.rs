//! One step of a path: a member, or an item of a list by its key fields, its value or its place.

use std::{cmp::Ordering, fmt};

use compact_str::CompactString;
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::{Number, Value};

use crate::gotext;

/// One step of a path.
#[derive(Clone, Debug)]
pub enum PathElement {
    /// A member of an object: `f:spec`.
    Field(CompactString),
    /// An item of a list with key fields, sorted by name: `k:{"name":"a"}`.
    Key(Box<[(CompactString, Value)]>),
    /// An item of a set: `v:"a"`.
    Value(Value),
    /// An item by its place: `i:0`.
    Index(i64),
}

/// Why text is no path element.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ElementError {
    /// A kind of element that a later release may know. It is left out of sets.
    #[error("unknown path element type")]
    UnknownType,
    #[error("{0}")]
    Malformed(String),
}

/// Up to here every integer is a float too.
const EXACT: i64 = 1 << 53;

impl PathElement {
    pub fn field(name: &str) -> Self {
        Self::Field(name.into())
    }

    /// An item of a set.
    pub fn value(mut value: Value) -> Self {
        settle_scalar(&mut value);
        Self::Value(value)
    }

    /// An item with these key fields, in any order.
    pub fn key(fields: impl IntoIterator<Item = (CompactString, Value)>) -> Self {
        let mut fields: Vec<_> = fields.into_iter().collect();
        fields.iter_mut().for_each(|(_, value)| settle_scalar(value));
        fields.sort_by(|(a, _), (b, _)| a.cmp(b));
        Self::Key(fields.into())
    }

    /// The element that [`PathElement::write`] wrote.
    pub fn parse(text: &str) -> Result<Self, ElementError> {
        let malformed = |why: String| ElementError::Malformed(why);
        let bytes = text.as_bytes();
        if bytes.len() < 2 {
            return Err(malformed("key must be 2 characters long:".to_owned()));
        }
        if bytes[1] != b':' || !text.is_char_boundary(2) {
            return Err(malformed(format!("missing colon: {text}")));
        }
        let rest = &text[2..];
        match bytes[0] {
            b'f' => Ok(Self::field(rest)),
            b'v' => first_value(rest).map(Self::Value).map_err(malformed),
            b'k' => {
                let Fields(fields) = Fields::deserialize(&mut serde_json::Deserializer::from_str(rest))
                    .map_err(|error| malformed(error.to_string()))?;
                Ok(Self::key(fields))
            }
            b'i' => rest.parse().map(Self::Index).map_err(|_| malformed(format!("no index: {rest}"))),
            _ => Err(ElementError::UnknownType),
        }
    }

    /// Writes the element as FieldsV1 has it.
    pub fn write(&self, out: &mut String) {
        match self {
            Self::Field(name) => {
                out.push_str("f:");
                out.push_str(name);
            }
            Self::Key(fields) => {
                out.push_str("k:{");
                for (at, (name, value)) in fields.iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    write_string(name, false, out);
                    out.push(':');
                    write_value(value, out);
                }
                out.push('}');
            }
            Self::Value(value) => {
                out.push_str("v:");
                write_value(value, out);
            }
            Self::Index(index) => out.push_str(&format!("i:{index}")),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

impl Ord for PathElement {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Key(a), Self::Key(b)) => compare_fields(a, b),
            (Self::Value(a), Self::Value(b)) => compare_values(a, b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathElement {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for PathElement {}

/// As messages show it: `.spec`, `[name="a"]`, `[="a"]`, `[0]`.
impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                f.write_str("[")?;
                for (at, (name, value)) in fields.iter().enumerate() {
                    let comma = if at > 0 { "," } else { "" };
                    write!(f, "{comma}{name}={}", show_value(value))?;
                }
                f.write_str("]")
            }
            Self::Value(value) => write!(f, "[={}]", show_value(value)),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// A path as messages show it.
pub fn show_path(path: &[PathElement]) -> String {
    path.iter().map(ToString::to_string).collect()
}

fn show_value(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::String(text) => gotext::quote(text),
        Value::Bool(_) | Value::Number(_) => gotext::plain(value),
        Value::Array(items) => format!("[{}]", items.iter().map(show_value).collect::<Vec<_>>().join(",")),
        Value::Object(members) => {
            members.iter().map(|(key, value)| format!("{key}={}", show_value(value))).collect()
        }
    }
}

fn compare_fields(a: &[(CompactString, Value)], b: &[(CompactString, Value)]) -> Ordering {
    for ((name_a, value_a), (name_b, value_b)) in a.iter().zip(b) {
        let order = name_a.cmp(name_b).then_with(|| compare_values(value_a, value_b));
        if order.is_ne() {
            return order;
        }
    }
    a.len().cmp(&b.len())
}

/// Numbers, strings, booleans, lists, objects, null; within each as expected. An integer and a float are equal if
/// they are the same number.
pub fn compare_values(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare_numbers(a, b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let different = a.iter().zip(b).map(|(a, b)| compare_values(a, b)).find(|order| order.is_ne());
            different.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => {
            let different = a
                .iter()
                .zip(b)
                .map(|((key_a, a), (key_b, b))| key_a.cmp(key_b).then_with(|| compare_values(a, b)))
                .find(|order| order.is_ne());
            different.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        _ => value_rank(a).cmp(&value_rank(b)),
    }
}

/// Whether two values are the same, integers and floats compared as numbers.
pub fn same_value(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare_numbers(a, b).is_eq(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_value(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter().zip(b).all(|((key_a, a), (key_b, b))| key_a == key_b && same_value(a, b))
        }
        _ => a == b,
    }
}

fn value_rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

/// By size, exactly; upstream rounds integers above 2^53 and so takes some of them for equal.
fn compare_numbers(a: &Number, b: &Number) -> Ordering {
    match (a.as_i64(), b.as_i64()) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(a), None) => compare_mixed(a, b.as_f64().unwrap_or_default()),
        (None, Some(b)) => compare_mixed(b, a.as_f64().unwrap_or_default()).reverse(),
        (None, None) => compare_floats(a.as_f64().unwrap_or_default(), b.as_f64().unwrap_or_default()),
    }
}

fn compare_floats(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or(Ordering::Equal)
}

fn compare_mixed(integer: i64, float: f64) -> Ordering {
    // A float of the size of 2^63 and more is no i64; below that its whole part is.
    if float >= 9_223_372_036_854_775_808.0 {
        return Ordering::Less;
    }
    if float < -9_223_372_036_854_775_808.0 {
        return Ordering::Greater;
    }
    let whole = float.trunc();
    integer.cmp(&(whole as i64)).then_with(|| compare_floats(whole, float))
}

/// The fields of a key, in the order given; the same name may be there twice.
struct Fields(Vec<(CompactString, Value)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ReadFields;

        impl<'de> Visitor<'de> for ReadFields {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_unit<E>(self) -> Result<Fields, E> {
                Ok(Fields(Vec::new()))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some((name, mut value)) = members.next_entry::<String, Value>()? {
                    as_floats(&mut value);
                    fields.push((name.into(), value));
                }
                Ok(Fields(fields))
            }
        }

        deserializer.deserialize_any(ReadFields)
    }
}

/// The value that text begins with; what comes after it does not count.
fn first_value(text: &str) -> Result<Value, String> {
    let mut value = Value::deserialize(&mut serde_json::Deserializer::from_str(text))
        .map_err(|error| error.to_string())?;
    as_floats(&mut value);
    Ok(value)
}

/// Upstream reads all numbers as floats, and messages show them so. Larger integers stay what they are: as floats
/// they would be other numbers.
fn as_floats(value: &mut Value) {
    match value {
        Value::Number(number) => match number.as_i64() {
            Some(integer) if (-EXACT..=EXACT).contains(&integer) => {
                if let Some(float) = Number::from_f64(integer as f64) {
                    *number = float;
                }
            }
            Some(_) => {}
            None => settle(number),
        },
        Value::Array(items) => items.iter_mut().for_each(as_floats),
        Value::Object(members) => members.values_mut().for_each(as_floats),
        _ => {}
    }
}

/// A large float is written in digits that are another integer; takes it for that one, as who reads them will.
fn settle(number: &mut Number) {
    let float = number.as_f64().filter(|float| !number.is_i64() && float.abs() > EXACT as f64);
    if let Some(integer) = float.and_then(|float| gotext::float(float).parse::<i64>().ok()) {
        *number = integer.into();
    }
}

fn settle_scalar(value: &mut Value) {
    if let Value::Number(number) = value {
        settle(number);
    }
}

fn write_value(value: &Value, out: &mut String) {
    match value {
        Value::String(text) => write_string(text, true, out),
        other => out.push_str(&gotext::json(other)),
    }
}

/// JSON strings as the encoder of sets writes them, which is not Go's own: backspace and form feed have no letter.
pub(super) fn write_string(text: &str, escape_html: bool, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0'..='\x1f' => out.push_str(&format!("\\u{:04x}", c as u32)),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' if escape_html => {
                out.push_str(&format!("\\u{:04x}", c as u32));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}
