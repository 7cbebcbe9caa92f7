//! The formats of texts: which are known, and which texts have them.

mod address;
mod mail;

use std::sync::LazyLock;

use regex::Regex;

use super::Structural;
use crate::{gourl::Url, schema};

/// Whether a format says anything about the values of a schema; others are ignored.
pub fn is_supported(schema: &Structural) -> bool {
    let type_name = if schema.int_or_string { "" } else { schema.type_name.as_str() };
    match type_name {
        "" | "string" => is_known_format(&schema.format),
        "integer" => matches!(schema.format.as_str(), "int32" | "int64"),
        "number" => matches!(schema.format.as_str(), "float" | "double"),
        _ => false,
    }
}

/// A test of texts.
type Test = fn(&str) -> bool;

/// Dashes in names do not count.
const FORMATS: &[(&str, Test)] = &[
    ("bsonobjectid", |text| text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit())),
    ("byte", is_base64),
    ("cidr", address::is_cidr),
    ("creditcard", is_credit_card),
    ("date", is_date),
    ("datetime", is_date_time),
    ("duration", is_duration),
    ("email", mail::is_address),
    ("hexcolor", is_hex_color),
    ("hostname", is_hostname),
    ("ipv4", |text| address::is_sloppy_ip(text) && text.contains('.')),
    ("ipv6", |text| text.contains(':') && text.parse::<std::net::Ipv6Addr>().is_ok()),
    ("isbn", |text| is_isbn10(text) || is_isbn13(text)),
    ("isbn10", is_isbn10),
    ("isbn13", is_isbn13),
    ("k8slongname", |text| text.len() <= 253 && text.split('.').all(is_name)),
    ("k8sshortname", |text| text.len() <= 63 && is_name(text)),
    ("mac", address::is_mac),
    ("password", |_| true),
    ("rgbcolor", |text| RGB_COLOR.is_match(text)),
    ("ssn", is_social_security_number),
    ("uri", is_request_uri),
    ("uuid", |text| is_uuid(text, &[], &[])),
    ("uuid3", |text| is_uuid(text, b"3", &[])),
    ("uuid4", |text| is_uuid(text, b"4", b"89abAB")),
    ("uuid5", |text| is_uuid(text, b"5", b"89abAB")),
];

fn test_of(format: &str) -> Option<Test> {
    let name = format.replace('-', "");
    FORMATS.iter().find(|(known, _)| *known == name).map(|(_, test)| *test)
}

pub fn is_known_format(format: &str) -> bool {
    !format.is_empty() && test_of(format).is_some()
}

/// Whether a text has a known format.
pub fn matches(format: &str, text: &str) -> bool {
    test_of(format).is_none_or(|test| test(text))
}

/// What Go takes for the target of a request.
pub fn is_request_uri(text: &str) -> bool {
    Url::parse_request(text).is_ok()
}

fn digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_name(text: &str) -> bool {
    let is_edge = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(is_edge)
        && bytes.last().is_some_and(is_edge)
        && bytes.iter().all(|byte| is_edge(byte) || *byte == b'-')
}

/// Not empty, padded, in the common alphabet.
fn is_base64(text: &str) -> bool {
    let body = text.strip_suffix("==").or_else(|| text.strip_suffix('=')).unwrap_or(text);
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    !text.is_empty() && text.len().is_multiple_of(4) && body.bytes().all(is_digit)
}

fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let [year, month, day] = parts.as_slice() else { return false };
    let number =
        |text: &str, len: usize| text.parse::<i16>().ok().filter(|_| text.len() == len && digits(text));
    let (Some(year), Some(month), Some(day)) = (number(year, 4), number(month, 2), number(day, 2)) else {
        return false;
    };
    let (Ok(month), Ok(day)) = (i8::try_from(month), i8::try_from(day)) else { return false };
    jiff::civil::Date::new(year, month, day).is_ok()
}

static TIME: LazyLock<Regex> =
    LazyLock::new(|| fixed(r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$"));
static HOSTNAME: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|",
        r"([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9\-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$"
    ))
});
static RGB_COLOR: LazyLock<Regex> = LazyLock::new(|| {
    let part = r"[\t\n\x0C\r ]*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])[\t\n\x0C\r ]*";
    fixed(&format!(r"^rgb\({part},{part},{part}\)$"))
});
static CREDIT_CARD: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        "^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|",
        "3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11})$"
    ))
});

/// A pattern that is part of this program, so that it compiles.
fn fixed(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a constant pattern compiles")
}

fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    if text.len() < 4 || !is_date(date) {
        return false;
    }
    let Some(found) = TIME.captures(time) else { return false };
    [(1, "23"), (2, "59"), (3, "59")].iter().all(|(group, most)| &found[*group] <= *most)
}

/// As Go writes durations, or as Scala does: `2 days`.
fn is_duration(text: &str) -> bool {
    if schema::parse_duration(text).is_ok() {
        return true;
    }
    let mut found = false;
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let number_end = start + rest[start..].bytes().take_while(u8::is_ascii_digit).count();
        let number = &rest[start..number_end];
        let after = rest[number_end..].trim_start_matches(['\t', '\n', '\x0c', '\r', ' ']);
        let unit_len = after.find(|c: char| !c.is_ascii_alphabetic() && c != 'µ').unwrap_or(after.len());
        let unit = after[..unit_len].to_lowercase();
        rest = &after[unit_len..];
        if unit.is_empty() {
            continue;
        }
        if number.parse::<i64>().is_err() {
            return false;
        }
        found |= is_time_unit(&unit);
    }
    found
}

fn is_time_unit(unit: &str) -> bool {
    const EXACT: [&str; 11] = ["ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk"];
    const PREFIXES: [&str; 8] = ["nano", "micro", "milli", "sec", "min", "hour", "day", "week"];
    EXACT.contains(&unit) || PREFIXES.iter().any(|prefix| unit.starts_with(prefix))
}

fn is_hex_color(text: &str) -> bool {
    let hex = text.strip_prefix('#').unwrap_or(text);
    matches!(hex.len(), 3 | 6) && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_hostname(text: &str) -> bool {
    text.len() <= 255 && text.split('.').all(|label| label.len() <= 63) && HOSTNAME.is_match(text)
}

fn is_social_security_number(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() == 11
        && bytes.iter().enumerate().all(|(at, byte)| match at {
            3 | 6 => matches!(byte, b'-' | b' '),
            _ => byte.is_ascii_digit(),
        })
}

/// 32 digits with dashes or without; `version` and `variant` restrict the digits that carry them.
fn is_uuid(text: &str, version: &[u8], variant: &[u8]) -> bool {
    let mut rest = text.as_bytes();
    for (group, len) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if group > 0 {
            rest = rest.strip_prefix(b"-").unwrap_or(rest);
        }
        let Some((part, after)) = rest.split_at_checked(len) else { return false };
        let restricted = match group {
            2 => version,
            3 => variant,
            _ => &[],
        };
        let first_fits = restricted.is_empty() || part.first().is_some_and(|byte| restricted.contains(byte));
        if !first_fits || !part.iter().all(u8::is_ascii_hexdigit) {
            return false;
        }
        rest = after;
    }
    rest.is_empty()
}

fn without_space_and_minus(text: &str) -> Vec<u8> {
    text.bytes().filter(|byte| !matches!(byte, b'\t' | b'\n' | b'\x0c' | b'\r' | b' ' | b'-')).collect()
}

fn is_isbn10(text: &str) -> bool {
    let bytes = without_space_and_minus(text);
    let [digits @ .., last] = bytes.as_slice() else { return false };
    if digits.len() != 9
        || !digits.iter().all(u8::is_ascii_digit)
        || !(last.is_ascii_digit() || *last == b'X')
    {
        return false;
    }
    let value = |byte: u8| if byte == b'X' { 10 } else { u32::from(byte - b'0') };
    let sum: u32 = bytes.iter().zip(1..).map(|(byte, weight)| weight * value(*byte)).sum();
    sum.is_multiple_of(11)
}

fn is_isbn13(text: &str) -> bool {
    let bytes = without_space_and_minus(text);
    if bytes.len() != 13 || !bytes.iter().all(u8::is_ascii_digit) {
        return false;
    }
    let weights = [1, 3].into_iter().cycle();
    let sum: u32 = bytes.iter().zip(weights).map(|(byte, weight)| weight * u32::from(byte - b'0')).sum();
    sum.is_multiple_of(10)
}

/// Any text that holds the digits of a card, with Luhn's check digit.
fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    if !CREDIT_CARD.is_match(&digits) {
        return false;
    }
    let sum: u32 = digits
        .bytes()
        .rev()
        .enumerate()
        .map(|(at, byte)| {
            let digit = u32::from(byte - b'0');
            let doubled = if at % 2 == 1 { 2 * digit } else { digit };
            if doubled >= 10 { doubled % 10 + 1 } else { doubled }
        })
        .sum();
    sum.is_multiple_of(10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_formats() {
        for (format, good, bad) in [
            ("bsonobjectid", vec!["507f1f77bcf86cd799439011"], vec!["507f1f77bcf86cd79943901", "x"]),
            ("byte", vec!["YQ==", "YWI=", "YWJj"], vec!["", "YQ", "Y*==", "YQ=a"]),
            (
                "cidr",
                vec!["10.0.0.0/8", "010.0.0.1/08", "::/0", "fe80::/10"],
                vec!["10.0.0.0", "10.0.0.0/33", "::/129"],
            ),
            ("creditcard", vec!["4111-1111-1111-1111", "x4111111111111111"], vec!["4111111111111112", ""]),
            ("date", vec!["2024-02-29"], vec!["2023-02-29", "2024-1-01", "24-01-01"]),
            (
                "date-time",
                vec!["2024-01-01T00:00:00Z", "2024-01-01t00:00:00.5+01:00", "2024-01-01T00:00:00,5z"],
                vec!["2024-01-01", "2024-01-01T24:00:00Z", "2024-01-01T00:00:00"],
            ),
            ("duration", vec!["1h", "1.5s", "2 days", "1 hour 5 min", "3 WEEKS"], vec!["", "x", "5", "5 x"]),
            (
                "email",
                vec!["a@b", "A B <a@b.c>", "\"x y\"@b", "a@[1.2.3.4]", "a@b (c)", "g: a@b;"],
                vec!["a", "a@", "@b", "a@b c", "a..b@c", "a@[x]"],
            ),
            ("hexcolor", vec!["#fff", "FFFFFF"], vec!["#ff", "#gggggg"]),
            (
                "hostname",
                vec!["a", "a-b.example.com", "1.example.com", "☃.net"],
                vec!["", "-a", "a_b", "a.b"],
            ),
            ("ipv4", vec!["1.2.3.4", "001.2.3.4", "::ffff:1.2.3.4"], vec!["1.2.3", "256.0.0.1", "::1"]),
            ("ipv6", vec!["::1", "1:2:3:4:5:6:7:8"], vec!["1.2.3.4", "::g", "1::2::3"]),
            ("isbn", vec!["0321751043", "978-0321751041", "0-9752298-0-X"], vec!["0321751044", "1"]),
            ("k8s-short-name", vec!["a", "a-b"], vec!["", "A", "-a", "a.b"]),
            ("k8s-long-name", vec!["a.b-c"], vec!["a..b", "a.-b"]),
            ("mac", vec!["01:23:45:67:89:ab", "0123.4567.89ab"], vec!["01:23:45:67:89", "01:23-45:67:89:ab"]),
            ("password", vec!["", "x"], vec![]),
            ("rgbcolor", vec!["rgb(0, 10,255)", "rgb(1,2,3)"], vec!["rgb(256,0,0)", "rgb(0,0)"]),
            ("ssn", vec!["111-11-1111", "111 11-1111"], vec!["111111111", "11-111-1111"]),
            ("uri", vec!["http://a/b", "/a", "mailto:x"], vec!["", "a", "http://a b"]),
            (
                "uuid",
                vec!["00000000-0000-0000-0000-00000000000A", "00000000000000000000000000000000"],
                vec!["x"],
            ),
            (
                "uuid4",
                vec!["00000000-0000-4000-8000-000000000000"],
                vec!["00000000-0000-3000-8000-000000000000"],
            ),
        ] {
            for text in good {
                assert!(matches(format, text), "{format}: {text}");
            }
            for text in bad {
                assert!(!matches(format, text), "{format}: {text}");
            }
        }
    }

    #[test]
    fn formats_count_only_for_their_type() {
        for (type_name, format, supported) in [
            ("string", "date-time", true),
            ("", "date", true),
            ("string", "int32", false),
            ("integer", "int32", true),
            ("integer", "date", false),
            ("number", "double", true),
            ("object", "date", false),
            ("string", "nonsense", false),
        ] {
            let schema = Structural {
                type_name: type_name.to_owned(),
                format: format.to_owned(),
                ..Structural::default()
            };
            assert_eq!(is_supported(&schema), supported, "{type_name} {format}");
        }
    }
}
