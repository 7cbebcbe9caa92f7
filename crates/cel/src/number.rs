//! Numbers as Go writes and reads them.

/// A double as Go's `%v` and `%g` print it: the shortest digits that read back, with an exponent below 1e-4 and from
/// 1e6 on.
pub fn shortest(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let power: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&power) {
        return format!("{value}");
    }
    let sign = if power < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", power.abs())
}

/// Reads a double as Go's `strconv.ParseFloat` does: hexadecimal floats, underscores between digits, `inf`, `nan`.
pub fn parse_double(text: &str) -> Option<f64> {
    let separated = text.as_bytes().windows(3).filter(|window| window[1] == b'_');
    let underscores = text.matches('_').count();
    if underscores > 0 {
        let valid =
            separated.filter(|window| window[0].is_ascii_hexdigit() && window[2].is_ascii_hexdigit()).count();
        return if valid == underscores { parse_double(&text.replace('_', "")) } else { None };
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let lower = unsigned.to_ascii_lowercase();
    match lower.as_str() {
        "inf" | "infinity" => {
            return Some(if text.starts_with('-') { f64::NEG_INFINITY } else { f64::INFINITY });
        }
        "nan" => return (unsigned.len() == text.len()).then_some(f64::NAN),
        _ => {}
    }
    if let Some(digits) = lower.strip_prefix("0x") {
        let magnitude = parse_hex_double(digits)?;
        return Some(if text.starts_with('-') { -magnitude } else { magnitude });
    }
    if !unsigned.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-')) {
        return None;
    }
    text.parse::<f64>().ok().filter(|value| value.is_finite())
}

fn parse_hex_double(text: &str) -> Option<f64> {
    let (mantissa, exponent) = text.split_once('p')?;
    let exponent: i32 = exponent.parse().ok()?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut value = 0f64;
    for digit in whole.chars().chain(fraction.chars()) {
        value = value * 16.0 + f64::from(digit.to_digit(16)?);
    }
    let scaled = value * 2f64.powi(exponent.checked_sub(4 * fraction.len() as i32)?);
    scaled.is_finite().then_some(scaled)
}

/// Reads an int as Go's `strconv.ParseInt(…, 10, 64)` does.
pub fn parse_int(text: &str) -> Option<i64> {
    text.parse().ok()
}

/// Reads a uint as Go's `strconv.ParseUint(…, 10, 64)` does: no sign.
pub fn parse_uint(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// A string quoted as Go's `%q` does.
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            c if (c as u32) < 0x20 || c == '\u{7f}' => quoted.push_str(&format!("\\x{:02x}", c as u32)),
            c if is_print(c) => quoted.push(c),
            c if (c as u32) < 0x10000 => quoted.push_str(&format!("\\u{:04x}", c as u32)),
            c => quoted.push_str(&format!("\\U{:08x}", c as u32)),
        }
    }
    quoted.push('"');
    quoted
}

/// Whether Go takes the character for printable. Unassigned code points are told apart by their escape in Rust, which
/// uses the same tables.
fn is_print(character: char) -> bool {
    if character == ' ' {
        return true;
    }
    if character.is_whitespace() {
        return false;
    }
    !matches!(character.escape_debug().next(), Some('\\')) || matches!(character, '\'' | '"' | '\\')
}
