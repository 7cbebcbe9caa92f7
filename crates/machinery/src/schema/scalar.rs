//! Times, durations and bytes as Go reads and writes them.

const RFC3339: &str = "2006-01-02T15:04:05Z07:00";
const RFC3339_MICRO: &str = "2006-01-02T15:04:05.000000Z07:00";
const SECONDS_PER_DAY: i64 = 86_400;
/// What Go takes for no time at all: the first second of the year 1.
pub(crate) const ZERO_TIME: i64 = -62_135_596_800;

/// Reads a `Time`: seconds since 1970, and the nanoseconds that a `Time` then forgets.
pub fn parse_time(text: &str) -> Result<(i64, u32), String> {
    TimeParser { whole: text, rest: text, layout: RFC3339 }.run()
}

/// Reads a `MicroTime`; it has exactly six digits after the point.
pub fn parse_micro_time(text: &str) -> Result<(i64, u32), String> {
    TimeParser { whole: text, rest: text, layout: RFC3339_MICRO }.run()
}

/// A time in UTC, to the second or, with `micros`, to the millionth.
pub fn time_text(seconds: i64, micros: Option<u32>) -> String {
    let (year, month, day) = civil_of(seconds.div_euclid(SECONDS_PER_DAY));
    let second = seconds.rem_euclid(SECONDS_PER_DAY);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let sign = if year < 0 { "-" } else { "" };
    let mut out = format!("{sign}{:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}", year.abs());
    if let Some(micros) = micros {
        out.push_str(&format!(".{micros:06}"));
    }
    out.push('Z');
    out
}

/// Steps through a time as Go's own parser does; it takes a few things that RFC 3339 does not.
struct TimeParser<'a> {
    whole: &'a str,
    rest: &'a str,
    layout: &'static str,
}

impl TimeParser<'_> {
    fn run(mut self) -> Result<(i64, u32), String> {
        let year = self.year()?;
        self.literal("-")?;
        let month = self.number("01", true, 1..=12, "month")?;
        self.literal("-")?;
        let day = self.number("02", true, 0..=99, "day")?;
        self.literal("T")?;
        let hour = self.number("15", false, 0..=23, "hour")?;
        self.literal(":")?;
        let minute = self.number("04", true, 0..=59, "minute")?;
        self.literal(":")?;
        let second = self.number("05", true, 0..=59, "second")?;
        let nanos = if self.layout == RFC3339_MICRO { self.six_digits()? } else { self.fraction() };
        let offset = self.zone()?;
        if !self.rest.is_empty() {
            return Err(self.refuse(&format!(": extra text: {}", quote(self.rest))));
        }
        if day < 1 || day > days_in(year, month) {
            return Err(self.out_of_range("day"));
        }
        let days = days_of(year, month, day);
        Ok((days * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second - offset, nanos))
    }

    fn mismatch(&self, at: &str, element: &str) -> String {
        let (whole, layout, at, element) = (quote(self.whole), quote(self.layout), quote(at), quote(element));
        format!("parsing time {whole} as {layout}: cannot parse {at} as {element}")
    }

    fn refuse(&self, why: &str) -> String {
        format!("parsing time {}{why}", quote(self.whole))
    }

    fn out_of_range(&self, what: &str) -> String {
        self.refuse(&format!(": {what} out of range"))
    }

    fn literal(&mut self, literal: &str) -> Result<(), String> {
        self.rest = self.rest.strip_prefix(literal).ok_or_else(|| self.mismatch(self.rest, literal))?;
        Ok(())
    }

    fn year(&mut self) -> Result<i64, String> {
        match digits(self.rest, 4) {
            Some(year) => {
                self.rest = &self.rest[4..];
                Ok(year)
            }
            None => Err(self.mismatch(self.rest, "2006")),
        }
    }

    /// Two digits, or one where Go takes one.
    fn number(
        &mut self,
        element: &str,
        two: bool,
        range: std::ops::RangeInclusive<i64>,
        what: &str,
    ) -> Result<i64, String> {
        let one = || digits(self.rest, 1).filter(|_| !two).map(|number| (number, 1));
        let found = digits(self.rest, 2).map(|number| (number, 2)).or_else(one);
        let (number, len) = found.ok_or_else(|| self.mismatch(self.rest, element))?;
        self.rest = &self.rest[len..];
        if range.contains(&number) { Ok(number) } else { Err(self.out_of_range(what)) }
    }

    fn six_digits(&mut self) -> Result<u32, String> {
        let fraction = self.rest.strip_prefix(['.', ',']).and_then(|rest| digits(rest, 6));
        let micros = fraction.ok_or_else(|| self.mismatch(self.rest, ".000000"))?;
        self.rest = &self.rest[7..];
        Ok(micros as u32 * 1000)
    }

    /// Digits after the seconds count also where the layout has none.
    fn fraction(&mut self) -> u32 {
        let Some(after) = self.rest.strip_prefix(['.', ',']) else { return 0 };
        let len = after.bytes().take_while(u8::is_ascii_digit).count();
        if len == 0 {
            return 0;
        }
        self.rest = &after[len..];
        let mut nanos = digits(after, len.min(9)).unwrap_or(0);
        for _ in len..9 {
            nanos *= 10;
        }
        nanos as u32
    }

    /// Seconds east of Greenwich.
    fn zone(&mut self) -> Result<i64, String> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let zone =
            self.rest.get(..6).filter(|zone| zone.as_bytes()[3] == b':' && zone.starts_with(['+', '-']));
        let parts = zone.and_then(|zone| Some((zone, digits(&zone[1..], 2)?, digits(&zone[4..], 2)?)));
        let (zone, hours, minutes) = parts.ok_or_else(|| self.mismatch(self.rest, "Z07:00"))?;
        if hours > 24 {
            return Err(self.out_of_range("time zone offset hour"));
        }
        if minutes > 60 {
            return Err(self.out_of_range("time zone offset minute"));
        }
        self.rest = &self.rest[6..];
        let offset = hours * 3600 + minutes * 60;
        Ok(if zone.starts_with('-') { -offset } else { offset })
    }
}

fn digits(text: &str, count: usize) -> Option<i64> {
    let digits = text.get(..count).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    digits.parse().ok()
}

/// As Go's `time` package quotes: bytes that are not ASCII as `\x..`.
fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend(['\\', byte as char]),
            b' '..0x80 => out.push(byte as char),
            _ => out.push_str(&format!("\\x{byte:02x}")),
        }
    }
    out.push('"');
    out
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970, in the calendar that has always been Gregorian. Years start in March so that the leap day is
/// their last; 400 of them have 146 097 days.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

fn civil_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day = days.rem_euclid(146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

const UNITS: [(&str, i128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Reads a `Duration`, `1h30m`, as nanoseconds.
pub fn parse_duration(text: &str) -> Result<i64, String> {
    let invalid = || format!("time: invalid duration {}", quote(text));
    let negative = text.starts_with('-');
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let (whole, after) = split_digits(rest);
        let (fraction, after) = after.strip_prefix('.').map_or(("", after), split_digits);
        if whole.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        let unit_len = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_len);
        if unit.is_empty() {
            return Err(format!("time: missing unit in duration {}", quote(text)));
        }
        let known = UNITS.iter().find(|(name, _)| *name == unit);
        let (_, scale) =
            known.ok_or_else(|| format!("time: unknown unit {} in duration {}", quote(unit), quote(text)))?;
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| invalid())? };
        let fraction = &fraction[..fraction.len().min(18)];
        let parts: i128 = if fraction.is_empty() { 0 } else { fraction.parse().map_err(|_| invalid())? };
        let nanos = whole.checked_mul(*scale).ok_or_else(invalid)?
            + parts * scale / 10i128.pow(fraction.len() as u32);
        total = total.checked_add(nanos).ok_or_else(invalid)?;
        rest = after;
    }
    i64::try_from(if negative { -total } else { total }).map_err(|_| invalid())
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

/// A duration as Go prints it: `1h30m0s`, `1.5ms`.
pub fn duration_text(nanos: i64) -> String {
    let size = nanos.unsigned_abs();
    let sign = if nanos < 0 { "-" } else { "" };
    let fraction = |value: u64, unit: u64, name: &str| {
        let digits = format!("{:0width$}", value % unit, width = unit.ilog10() as usize);
        let digits = digits.trim_end_matches('0');
        let point = if digits.is_empty() || unit == 1 { String::new() } else { format!(".{digits}") };
        format!("{}{point}{name}", value / unit)
    };
    let text = match size {
        0 => "0s".to_owned(),
        1..1_000 => format!("{size}ns"),
        1_000..1_000_000 => fraction(size, 1_000, "µs"),
        1_000_000..1_000_000_000 => fraction(size, 1_000_000, "ms"),
        _ => {
            let minutes = size / 60_000_000_000;
            let seconds = fraction(size % 60_000_000_000, 1_000_000_000, "s");
            match (minutes / 60, minutes % 60) {
                (0, 0) => seconds,
                (0, minutes) => format!("{minutes}m{seconds}"),
                (hours, minutes) => format!("{hours}h{minutes}m{seconds}"),
            }
        }
    };
    format!("{sign}{text}")
}

pub(crate) fn base64_text(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// Base 64 as Go reads it (line ends are skipped, stray bits in the last digit too), written anew.
pub fn base64_canonical(text: &str) -> Result<String, String> {
    use base64::Engine as _;
    use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &base64::alphabet::STANDARD,
        GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
    );
    let digits: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    match LENIENT.decode(&digits) {
        Ok(bytes) => Ok(base64_text(&bytes)),
        Err(_) => Err(format!("illegal base64 data at input byte {}", corrupt_at(text.as_bytes()))),
    }
}

/// Where Go's decoder stops: at the first byte that cannot be, or at the end of an incomplete group.
fn corrupt_at(text: &[u8]) -> usize {
    let digits: Vec<(usize, u8)> =
        text.iter().copied().enumerate().filter(|(_, byte)| !matches!(byte, b'\r' | b'\n')).collect();
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    for (group, four) in digits.chunks(4).enumerate() {
        let Some(bad) = four.iter().position(|(_, byte)| !is_digit(*byte)) else {
            if four.len() < 4 {
                // Go names the start of the incomplete group, measured from the end.
                return text.len() - four.len();
            }
            continue;
        };
        let (at, byte) = four[bad];
        let next = digits.get(group * 4 + bad + 1);
        return match (byte, bad, next) {
            (b'=', 0 | 1, _) => at,
            (b'=', 2, None) => text.len(),
            (b'=', 2, Some((at, byte))) if *byte != b'=' => at - 1,
            (b'=', 2, Some(_)) => digits.get(group * 4 + 4).map_or(text.len(), |(at, _)| *at),
            (b'=', _, next) => next.map_or(text.len(), |(at, _)| *at),
            _ => at,
        };
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_written_in_utc() {
        for (text, written) in [
            ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z"),
            ("2024-02-29T23:59:59.999Z", "2024-02-29T23:59:59Z"),
            ("2024-01-01T00:30:00+01:00", "2023-12-31T23:30:00Z"),
            ("2000-03-01T00:00:00-12:30", "2000-03-01T12:30:00Z"),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
            ("1600-02-29T12:00:00Z", "1600-02-29T12:00:00Z"),
        ] {
            assert_eq!(
                parse_time(text).map(|(seconds, _)| time_text(seconds, None)),
                Ok(written.to_owned()),
                "{text}"
            );
        }
        assert_eq!(parse_time("0001-01-01T00:00:00Z"), Ok((ZERO_TIME, 0)));
        let micro = parse_micro_time("2024-01-01T00:00:00.123456Z").unwrap();
        assert_eq!(time_text(micro.0, Some(micro.1 / 1000)), "2024-01-01T00:00:00.123456Z");
    }

    #[test]
    fn mistakes_in_times_are_explained() {
        const AS: &str = r#"as "2006-01-02T15:04:05Z07:00": cannot parse"#;
        for (text, message) in [
            ("", format!(r#"parsing time "" {AS} "" as "2006""#)),
            ("x", format!(r#"parsing time "x" {AS} "x" as "2006""#)),
            ("2024-01-01", format!(r#"parsing time "2024-01-01" {AS} "" as "T""#)),
            (
                "2024-1-01T00:00:00Z",
                format!(r#"parsing time "2024-1-01T00:00:00Z" {AS} "1-01T00:00:00Z" as "01""#),
            ),
            ("2024-13-01T00:00:00Z", r#"parsing time "2024-13-01T00:00:00Z": month out of range"#.to_owned()),
            ("2024-02-30T00:00:00Z", r#"parsing time "2024-02-30T00:00:00Z": day out of range"#.to_owned()),
            ("2024-01-01T00:00:00", format!(r#"parsing time "2024-01-01T00:00:00" {AS} "" as "Z07:00""#)),
            (
                "2024-01-01T00:00:00Zé",
                r#"parsing time "2024-01-01T00:00:00Z\xc3\xa9": extra text: "\xc3\xa9""#.to_owned(),
            ),
        ] {
            assert_eq!(parse_time(text), Err(message));
        }
        assert_eq!(
            parse_micro_time("2024-01-01T00:00:00Z").unwrap_err(),
            r#"parsing time "2024-01-01T00:00:00Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000""#
        );
    }

    #[test]
    fn durations_read_and_print_as_gos() {
        for (text, printed) in [
            ("0", "0s"),
            ("1h30m", "1h30m0s"),
            ("90s", "1m30s"),
            ("1.5ms", "1.5ms"),
            ("-1.5h", "-1h30m0s"),
            ("100us", "100µs"),
            ("1500ns", "1.5µs"),
        ] {
            assert_eq!(parse_duration(text).map(duration_text), Ok(printed.to_owned()), "{text}");
        }
        assert_eq!(parse_duration("1"), Err("time: missing unit in duration \"1\"".to_owned()));
        assert_eq!(parse_duration("1y"), Err("time: unknown unit \"y\" in duration \"1y\"".to_owned()));
        assert_eq!(parse_duration(""), Err("time: invalid duration \"\"".to_owned()));
    }

    #[test]
    fn bytes_are_checked_and_written_anew() {
        for (text, canonical) in [("", ""), ("YQ==", "YQ=="), ("YR==", "YQ=="), ("YW\nJj\r\n", "YWJj")] {
            assert_eq!(base64_canonical(text), Ok(canonical.to_owned()), "{text:?}");
        }
        for (text, at) in
            [("a", 0), ("YQ=", 3), ("YQ", 0), ("Y!==", 1), ("YQ==YQ==", 4), ("é", 0), ("YWJj*", 4)]
        {
            assert_eq!(
                base64_canonical(text),
                Err(format!("illegal base64 data at input byte {at}")),
                "{text:?}"
            );
        }
    }
}
