//! `"%s is %d".format([…])`, as cel-go's string library has it in version 2.

use std::{cell::Cell, fmt::Write};

use super::{convert::string_of, strings::text};
use crate::{
    error::{Eval, EvalError},
    functions::Context,
    number::quote,
    time,
    value::{List, Value},
};

/// The most elements one clause writes: lists share their parts and can be far longer written out than they are.
const MAX_ELEMENTS: u32 = 1 << 20;
/// Digits behind the point unless the clause says how many.
const DEFAULT_PRECISION: usize = 6;

/// What a clause does with its argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    String,
    Decimal,
    Fixed,
    Scientific,
    Binary,
    Hex { upper: bool },
    Octal,
}

/// A `%` clause of a format.
#[derive(Debug, Clone, Copy)]
pub struct Clause {
    pub verb: Verb,
    precision: Option<usize>,
}

impl Clause {
    /// The complaint about an argument of the wrong type.
    pub fn complaint(&self, type_name: &str) -> String {
        let needs = match self.verb {
            Verb::String => {
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, \
                 and timestamps"
            }
            Verb::Decimal => "decimal clause can only be used on integers",
            Verb::Fixed => "fixed-point clause can only be used on doubles",
            Verb::Scientific => "scientific clause can only be used on doubles",
            Verb::Binary => "only integers and bools can be formatted as binary",
            Verb::Hex { .. } => "only integers, byte buffers, and strings can be formatted as hex",
            Verb::Octal => "octal clause can only be used on integers",
        };
        format!("error during formatting: {needs}, was given {type_name}")
    }
}

/// Reads a format: calls `literal` with text and `clause` with the number and meaning of each clause.
pub fn clauses(
    format: &str,
    available: Option<usize>,
    mut literal: impl FnMut(&str) -> Eval<()>,
    mut clause: impl FnMut(usize, Clause) -> Eval<()>,
) -> Eval<()> {
    let mut rest = format;
    let mut index = 0;
    while let Some(percent) = rest.find('%') {
        literal(&rest[..percent])?;
        rest = &rest[percent + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            literal("%")?;
            rest = after;
            continue;
        }
        let out_of_range = || EvalError::invalid(format!("index {index} out of range"));
        match available {
            Some(available) if index >= available && !rest.is_empty() => return Err(out_of_range()),
            Some(available) if index >= available => return Err(out_of_range()),
            _ if rest.is_empty() => return Err(EvalError::invalid("unexpected end of string")),
            _ => {}
        }
        let (read, after) = parse_clause(rest)
            .map_err(|reason| EvalError::invalid(format!("could not parse formatting clause: {reason}")))?;
        clause(index, read)?;
        rest = after;
        index += 1;
    }
    literal(rest)
}

fn parse_clause(text: &str) -> Result<(Clause, &str), String> {
    let (precision, rest) = match text.strip_prefix('.') {
        None => (None, text),
        Some(after) => {
            let end = after.bytes().take_while(u8::is_ascii_digit).count();
            if end == after.len() {
                return Err(
                    "error while parsing precision: could not find end of precision specifier".to_owned()
                );
            }
            let digits = &after[..end];
            let reason = if digits.is_empty() { "invalid syntax" } else { "value out of range" };
            let precision = digits.parse::<i64>().map_err(|_| {
                format!(
                    "error while parsing precision: error while converting precision to integer: strconv.Atoi: \
                     parsing {}: {reason}",
                    quote(digits)
                )
            })?;
            (Some(precision as usize), &after[end..])
        }
    };
    let verb = match rest.chars().next() {
        Some('s') => Verb::String,
        Some('d') => Verb::Decimal,
        Some('f') => Verb::Fixed,
        Some('e') => Verb::Scientific,
        Some('b') => Verb::Binary,
        Some('x') => Verb::Hex { upper: false },
        Some('X') => Verb::Hex { upper: true },
        Some('o') => Verb::Octal,
        // Go looks at one byte.
        _ => {
            let byte = rest.bytes().next().unwrap_or(b'%');
            return Err(format!("unrecognized formatting clause \"{}\"", char::from(byte)));
        }
    };
    Ok((Clause { verb, precision }, &rest[1..]))
}

pub fn format<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Eval<Value<'a>> {
    let format = text(args, 0)?;
    let Some(Value::List(list)) = args.get(1) else { return Err(EvalError::no_such_overload()) };
    let output = std::cell::RefCell::new(String::new());
    let budget = &*context.budget;
    let push = |piece: &str| {
        let mut output = output.borrow_mut();
        budget.room((output.len() + piece.len()) as u64)?;
        output.push_str(piece);
        Ok(())
    };
    clauses(format, Some(list.len()), push, |index, clause| {
        let value = list.get(index).unwrap_or_else(|| Err(EvalError::no_such_overload()))?;
        if let Some(precision) = clause.precision {
            budget.room(precision as u64)?;
        }
        push(&apply(&clause, &value)?)
    })?;
    Ok(Value::string(output.into_inner()))
}

fn apply(clause: &Clause, value: &Value<'_>) -> Eval<String> {
    let room = &Cell::new(MAX_ELEMENTS);
    let refuse = || EvalError::invalid(clause.complaint(value.type_name()));
    match (clause.verb, value) {
        (Verb::String, _) => string_clause(value, clause, room),
        (Verb::Decimal, Value::Int(value)) => Ok(value.to_string()),
        (Verb::Decimal, Value::Uint(value)) => Ok(value.to_string()),
        (Verb::Fixed | Verb::Scientific, _) => {
            let double = double_of(value).ok_or_else(refuse)?;
            let precision = clause.precision.unwrap_or(DEFAULT_PRECISION);
            Ok(match clause.verb {
                Verb::Fixed => localized_fixed(double, precision),
                _ => format!("{:>precision$}", localized_scientific(double)),
            })
        }
        (Verb::Binary, Value::Int(value)) => Ok(signed(*value, format!("{:b}", value.unsigned_abs()))),
        (Verb::Binary, Value::Uint(value)) => Ok(format!("{value:b}")),
        (Verb::Binary, Value::Bool(value)) => Ok(if *value { "1" } else { "0" }.to_owned()),
        (Verb::Octal, Value::Int(value)) => Ok(signed(*value, format!("{:o}", value.unsigned_abs()))),
        (Verb::Octal, Value::Uint(value)) => Ok(format!("{value:o}")),
        (Verb::Hex { upper }, _) => {
            let hex = match value {
                Value::Int(value) => signed(*value, format!("{:x}", value.unsigned_abs())),
                Value::Uint(value) => format!("{value:x}"),
                Value::String(text) => hex_of(text.as_bytes()),
                Value::Bytes(bytes) => hex_of(bytes),
                _ => return Err(refuse()),
            };
            Ok(if upper { hex.to_uppercase() } else { hex })
        }
        _ => Err(refuse()),
    }
}

fn signed(value: i64, magnitude: String) -> String {
    if value < 0 { format!("-{magnitude}") } else { magnitude }
}

fn hex_of(bytes: &[u8]) -> String {
    let mut hex = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

fn double_of(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Double(value) => Some(*value),
        Value::String(text) => match &**text {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

fn localized_special(value: f64) -> Option<String> {
    if value.is_nan() {
        return Some("NaN".to_owned());
    }
    value.is_infinite().then(|| if value > 0.0 { "∞" } else { "-∞" }.to_owned())
}

/// American English: commas between thousands.
fn localized_fixed(value: f64, precision: usize) -> String {
    if let Some(special) = localized_special(value) {
        return special;
    }
    let plain = format!("{:.precision$}", value.abs());
    let (whole, fraction) = match plain.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (plain.as_str(), None),
    };
    let mut text = if value < 0.0 { "-".to_owned() } else { String::new() };
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    if let Some(fraction) = fraction {
        text.push('.');
        text.push_str(fraction);
    }
    text
}

/// `1.052033×10⁰³`; the precision of the clause is taken for the least width.
fn localized_scientific(value: f64) -> String {
    if let Some(special) = localized_special(value) {
        return special;
    }
    // Zero has no sign.
    let value = if value == 0.0 { 0.0 } else { value };
    let plain = format!("{value:.DEFAULT_PRECISION$e}");
    let Some((mantissa, exponent)) = plain.split_once('e') else { return plain };
    let (sign, digits) = match exponent.strip_prefix('-') {
        Some(digits) => ("⁻", digits),
        None => ("", exponent),
    };
    let superscript =
        |digit: char| "⁰¹²³⁴⁵⁶⁷⁸⁹".chars().nth(digit.to_digit(10).unwrap_or(0) as usize).unwrap_or('⁰');
    let digits: String = format!("{digits:0>2}").chars().map(superscript).collect();
    format!("{mantissa}×10{sign}{digits}")
}

fn string_clause(value: &Value<'_>, clause: &Clause, room: &Cell<u32>) -> Eval<String> {
    match value {
        Value::List(list) => list_text(list, clause, room),
        Value::Map(_) => map_text(value, clause, room),
        Value::Null => Ok("null".to_owned()),
        Value::Optional(_) | Value::Opaque(_) | Value::Preserved(_) | Value::Struct(_) => {
            Err(EvalError::invalid(clause.complaint(value.type_name())))
        }
        other => match string_of(other) {
            Ok(text) => Ok(text.to_string()),
            Err(error) => Err(EvalError::invalid(format!(
                "error during formatting: could not convert argument {} to string",
                quote(error.message())
            ))),
        },
    }
}

/// An element of a list or map, quoted so that it can be told from the text around it.
fn nested(value: &Value<'_>, clause: &Clause, room: &Cell<u32>) -> Eval<String> {
    room.set(room.get().checked_sub(1).ok_or_else(EvalError::cost_limit)?);
    Ok(match value {
        Value::String(text) => quote(text),
        Value::Bytes(_) => format!("b{}", quote(&string_clause(value, clause, room)?)),
        Value::Double(double) if double.is_finite() => format!("{double:.DEFAULT_PRECISION$}"),
        Value::Double(double) if double.is_nan() => "\"NaN\"".to_owned(),
        Value::Double(double) => if *double > 0.0 { "\"+Inf\"" } else { "\"-Inf\"" }.to_owned(),
        Value::Timestamp(time) => format!("timestamp({})", quote(&time.rfc3339())),
        Value::Duration(nanos) => format!("duration({})", quote(&time::cel_duration(*nanos))),
        Value::Optional(_) | Value::Opaque(_) | Value::Preserved(_) | Value::Struct(_) => {
            let message =
                format!("error during formatting: no formatting function for {}", value.type_name());
            return Err(EvalError::invalid(message));
        }
        other => string_clause(other, clause, room)?,
    })
}

fn list_text(list: &List<'_>, clause: &Clause, room: &Cell<u32>) -> Eval<String> {
    let mut text = String::from("[");
    for (index, element) in list.iter().enumerate() {
        if index > 0 {
            text.push_str(", ");
        }
        text.push_str(&nested(&element?, clause, room)?);
    }
    text.push(']');
    Ok(text)
}

fn map_text(value: &Value<'_>, clause: &Clause, room: &Cell<u32>) -> Eval<String> {
    let Value::Map(map) = value else { return Err(EvalError::no_such_overload()) };
    let mut pairs = Vec::with_capacity(map.len());
    for (key, value) in map.entries()? {
        if !matches!(key, Value::String(_) | Value::Bool(_) | Value::Int(_) | Value::Uint(_)) {
            let name = key.type_name();
            let message =
                format!("error during formatting: no formatting function for map key of type {name}");
            return Err(EvalError::invalid(message));
        }
        pairs.push((nested(&key, clause, room)?, nested(&value, clause, room)?));
    }
    pairs.sort();
    let pairs: Vec<String> = pairs.into_iter().map(|(key, value)| format!("{key}:{value}")).collect();
    Ok(format!("{{{}}}", pairs.join(", ")))
}
