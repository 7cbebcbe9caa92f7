//! Text as Go prints it: error messages that clients compare carry values in Go's notation.

use std::io;

use serde::Serialize;
use serde_json::{Serializer, Value, ser::Formatter};

/// `fmt.Sprintf("%q", text)`.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x0b' => out.push_str("\\v"),
            c if is_print(c) => out.push(c),
            c if (c as u32) < 0x80 => out.push_str(&format!("\\x{:02x}", c as u32)),
            c if (c as u32) < 0x10000 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push_str(&format!("\\U{:08x}", c as u32)),
        }
    }
    out.push('"');
    out
}

/// `unicode.IsPrint`: letters, marks, numbers, punctuation, symbols and the ASCII space.
pub fn is_print(c: char) -> bool {
    match c {
        ' '..='~' => true,
        '\0'..='\x7f' => false,
        // After another character `escape_debug` leaves marks alone, so it escapes exactly what is not printable.
        c => {
            let mut pair = [b'a'; 5];
            let len = 1 + c.encode_utf8(&mut pair[1..]).len();
            std::str::from_utf8(&pair[..len]).is_ok_and(|pair| pair.escape_debug().count() == 2)
        }
    }
}

/// `fmt.Sprintf("%#U", c)`: `U+0009`, or `U+00E9 'é'` when it can be printed.
pub fn code_point(c: char) -> String {
    if is_print(c) { format!("U+{:04X} '{c}'", c as u32) } else { format!("U+{:04X}", c as u32) }
}

/// `json.Marshal`: compact, with `<`, `>`, `&`, U+2028 and U+2029 escaped.
pub fn json(value: &(impl Serialize + ?Sized)) -> String {
    let mut out = Vec::new();
    match value.serialize(&mut Serializer::with_formatter(&mut out, GoFormatter)) {
        Ok(()) => String::from_utf8_lossy(&out).into_owned(),
        Err(_) => String::new(),
    }
}

/// `json.Marshal` of a float.
pub fn float(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let text = format!("{value:e}");
        // Go writes the sign of the exponent: 1e+21.
        return match text.split_once('e') {
            Some((mantissa, exponent)) if !exponent.starts_with('-') => format!("{mantissa}e+{exponent}"),
            _ => text,
        };
    }
    format!("{value}")
}

/// A value inside an error message: strings as `%q`, numbers as `%v`, the rest as JSON.
pub fn bad_value(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Number(_) => plain(value),
        other => json(other),
    }
}

/// `fmt.Sprintf("%v", value)` of a decoded JSON value: `map[a:1 b:[x <nil>]]`.
pub fn plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => match number.as_i64() {
            Some(number) => number.to_string(),
            None => plain_float(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(plain).collect::<Vec<_>>().join(" ")),
        Value::Object(members) => {
            let members = members.iter().map(|(key, value)| format!("{key}:{}", plain(value)));
            format!("map[{}]", members.collect::<Vec<_>>().join(" "))
        }
    }
}

/// `%v` of a float: an exponent of two digits below 1e-4 and from 1e6.
pub fn plain_float(value: f64) -> String {
    let text = format!("{value:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    if exponent.parse::<i32>().is_ok_and(|exponent| (-4..6).contains(&exponent)) {
        return format!("{value}");
    }
    let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
    format!("{mantissa}e{sign}{digits:0>2}")
}

/// `fmt.Sprintf("%#v", value)` of a decoded JSON value: `map[string]interface {}{"a":1}`.
pub fn syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Bool(_) | Value::Number(_) => plain(value),
        Value::String(text) => quote(text),
        Value::Array(items) => {
            format!("[]interface {{}}{{{}}}", items.iter().map(syntax).collect::<Vec<_>>().join(", "))
        }
        Value::Object(members) => {
            let members = members.iter().map(|(key, value)| format!("{}:{}", quote(key), syntax(value)));
            format!("map[string]interface {{}}{{{}}}", members.collect::<Vec<_>>().join(", "))
        }
    }
}

/// What Go calls the type of a decoded JSON value.
pub fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

struct GoFormatter;

impl Formatter for GoFormatter {
    fn write_f64<W: io::Write + ?Sized>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        writer.write_all(float(value).as_bytes())
    }

    fn write_string_fragment<W: io::Write + ?Sized>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut start = 0;
        for (at, c) in fragment.char_indices() {
            if matches!(c, '<' | '>' | '&' | '\u{2028}' | '\u{2029}') {
                writer.write_all(&fragment.as_bytes()[start..at])?;
                write!(writer, "\\u{:04x}", c as u32)?;
                start = at + c.len_utf8();
            }
        }
        writer.write_all(&fragment.as_bytes()[start..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn strings_are_quoted_as_go_does() {
        for (text, quoted) in [
            ("", r#""""#),
            ("a\"b\\c", r#""a\"b\\c""#),
            ("\n\t\u{7}\u{b}\u{1b}", r#""\n\t\a\v\x1b""#),
            ("é日\u{301}", "\"é日\u{301}\""),
            ("\u{a0}\u{200b}\u{feff}", r#""\u00a0\u200b\ufeff""#),
            ("\u{e0001}😀", r#""\U000e0001😀""#),
        ] {
            assert_eq!(quote(text), quoted);
        }
    }

    #[test]
    fn json_is_escaped_as_go_does() {
        assert_eq!(
            json(&json!({"a": "<&>\u{2028}\n", "b": [1, 1.5, null]})),
            "{\"a\":\"\\u003c\\u0026\\u003e\\u2028\\n\",\"b\":[1,1.5,null]}"
        );
        for (value, text) in [
            (1.0, "1"),
            (1e20, "100000000000000000000"),
            (1e21, "1e+21"),
            (0.000001, "0.000001"),
            (1.5e-7, "1.5e-7"),
        ] {
            assert_eq!(float(value), text);
        }
    }

    #[test]
    fn decoded_json_prints_as_go_prints_it() {
        let value = json!({"b": [1, "x", null, true], "a": {"c": 1.5}});
        assert_eq!(plain(&value), "map[a:map[c:1.5] b:[1 x <nil> true]]");
        assert_eq!(
            [json!(1e21), json!(1e6), json!(123456.5), json!(1e-5), json!(-0.5), json!(2097152.0)]
                .map(|value| plain(&value)),
            ["1e+21", "1e+06", "123456.5", "1e-05", "-0.5", "2.097152e+06"]
        );
    }

    #[test]
    fn code_points_show_printable_characters() {
        assert_eq!(code_point('\t'), "U+0009");
        assert_eq!(code_point('é'), "U+00E9 'é'");
    }
}
