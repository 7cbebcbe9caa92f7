//! Instants and lengths of time as Go keeps, reads and writes them.

use std::fmt::Write;

use crate::error::{Eval, EvalError};

/// The instants CEL accepts: the years 1 to 9999.
const MIN_SECONDS: i64 = -62_135_596_800;
const MAX_SECONDS: i64 = 253_402_300_799;
const NANOS: i64 = 1_000_000_000;
const DAY: i64 = 86_400;

/// An instant with the offset from UTC it was written with.
#[derive(Debug, Clone, Copy)]
pub struct Time {
    seconds: i64,
    nanos: u32,
    offset: i32,
}

impl PartialEq for Time {
    fn eq(&self, other: &Self) -> bool {
        (self.seconds, self.nanos) == (other.seconds, other.nanos)
    }
}

impl Eq for Time {}

impl PartialOrd for Time {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Time {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.seconds, self.nanos).cmp(&(other.seconds, other.nanos))
    }
}

/// A date and a time of day.
#[derive(Debug, Clone, Copy)]
pub struct Civil {
    pub year: i64,
    /// Counted from 1.
    pub month: i64,
    /// Counted from 1.
    pub day: i64,
    pub hour: i64,
    pub minute: i64,
    pub second: i64,
    /// Counted from 1.
    pub day_of_year: i64,
    /// Counted from Sunday, 0.
    pub day_of_week: i64,
}

fn overflow() -> EvalError {
    EvalError::overflow("timestamp overflow")
}

impl Time {
    /// The instant so many seconds after 1970, if CEL has it.
    pub fn from_unix(seconds: i64, nanos: u32, offset: i32) -> Eval<Time> {
        if !(MIN_SECONDS..=MAX_SECONDS).contains(&seconds) {
            return Err(overflow());
        }
        Ok(Time { seconds, nanos, offset })
    }

    pub fn seconds(&self) -> i64 {
        self.seconds
    }

    pub fn nanos(&self) -> u32 {
        self.nanos
    }

    /// Go's zero time: the first instant of the year 1.
    pub fn is_zero(&self) -> bool {
        self.seconds == MIN_SECONDS && self.nanos == 0
    }

    pub fn add(&self, nanos: i64) -> Eval<Time> {
        let sum = i64::from(self.nanos) + nanos.rem_euclid(NANOS);
        let seconds = self.seconds + nanos.div_euclid(NANOS) + sum / NANOS;
        Time::from_unix(seconds, (sum % NANOS) as u32, self.offset)
    }

    /// The nanoseconds from the other instant to this one.
    pub fn since(&self, other: &Time) -> Eval<i64> {
        let nanos = (i128::from(self.seconds) - i128::from(other.seconds)) * i128::from(NANOS)
            + i128::from(self.nanos)
            - i128::from(other.nanos);
        i64::try_from(nanos).map_err(|_| EvalError::overflow("integer overflow"))
    }

    /// Date and time of day at an offset from UTC.
    pub fn civil(&self, offset: i64) -> Civil {
        let local = self.seconds + offset;
        let days = local.div_euclid(DAY);
        let rest = local.rem_euclid(DAY);
        let (year, month, day) = civil_from_days(days);
        Civil {
            year,
            month,
            day,
            hour: rest / 3600,
            minute: rest / 60 % 60,
            second: rest % 60,
            day_of_year: days - days_from_civil(year, 1, 1) + 1,
            day_of_week: (days + 4).rem_euclid(7),
        }
    }

    /// RFC 3339, with as many digits of a second as needed.
    pub fn rfc3339(&self) -> String {
        self.rfc3339_at(self.offset)
    }

    pub fn rfc3339_utc(&self) -> String {
        self.rfc3339_at(0)
    }

    fn rfc3339_at(&self, offset: i32) -> String {
        let Civil { year, month, day, hour, minute, second, .. } = self.civil(i64::from(offset));
        let mut text = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
        if self.nanos > 0 {
            let digits = format!("{:09}", self.nanos);
            let _ = write!(text, ".{}", digits.trim_end_matches('0'));
        }
        push_offset(&mut text, offset, ":", "Z");
        text
    }

    /// As Go prints it: `2026-11-15 13:00:00 +0000 UTC`.
    pub fn go_string(&self) -> String {
        let Civil { year, month, day, hour, minute, second, .. } = self.civil(i64::from(self.offset));
        let mut text = format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}");
        if self.nanos > 0 {
            let digits = format!("{:09}", self.nanos);
            let _ = write!(text, ".{}", digits.trim_end_matches('0'));
        }
        text.push(' ');
        push_offset(&mut text, self.offset, "", "+0000 UTC");
        if self.offset != 0 {
            text.push(' ');
            push_offset(&mut text, self.offset, "", "");
        }
        text
    }

    /// Reads RFC 3339 as Go's `time.Parse(time.RFC3339, …)` does.
    pub fn parse_rfc3339(text: &str) -> Option<Time> {
        let mut reader = Reader { rest: text.as_bytes() };
        let (year, month, day) = reader.date()?;
        reader.literal(b'T')?;
        // Go's layout takes one digit of the hour too.
        let hour = reader.one_or_two_digits()?;
        reader.literal(b':')?;
        let minute = reader.digits(2)?;
        reader.literal(b':')?;
        let second = reader.digits(2)?;
        if hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let nanos = reader.fraction();
        let offset = reader.offset()?;
        if !reader.rest.is_empty() {
            return None;
        }
        let local = days_from_civil(year, month, day) * DAY + hour * 3600 + minute * 60 + second;
        Some(Time { seconds: local - offset, nanos, offset: offset as i32 })
    }

    /// Reads `2026-11-15`.
    pub fn parse_date(text: &str) -> Option<Time> {
        let mut reader = Reader { rest: text.as_bytes() };
        let (year, month, day) = reader.date()?;
        reader.rest.is_empty().then(|| Time {
            seconds: days_from_civil(year, month, day) * DAY,
            nanos: 0,
            offset: 0,
        })
    }

    /// Whether the instant is one CEL accepts.
    pub fn in_range(&self) -> bool {
        (MIN_SECONDS..=MAX_SECONDS).contains(&self.seconds)
    }
}

fn push_offset(text: &mut String, offset: i32, colon: &str, utc: &str) {
    if offset == 0 {
        text.push_str(utc);
        return;
    }
    let sign = if offset < 0 { '-' } else { '+' };
    let minutes = offset.abs() / 60;
    let _ = write!(text, "{sign}{:02}{colon}{:02}", minutes / 60, minutes % 60);
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn literal(&mut self, byte: u8) -> Option<()> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        (*first == byte).then_some(())
    }

    fn digits(&mut self, count: usize) -> Option<i64> {
        let (digits, rest) = self.rest.split_at_checked(count)?;
        if !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        self.rest = rest;
        std::str::from_utf8(digits).ok()?.parse().ok()
    }

    fn one_or_two_digits(&mut self) -> Option<i64> {
        let two = self.rest.get(1).is_some_and(u8::is_ascii_digit);
        self.digits(if two { 2 } else { 1 })
    }

    fn date(&mut self) -> Option<(i64, i64, i64)> {
        let year = self.digits(4)?;
        self.literal(b'-')?;
        let month = self.digits(2)?;
        self.literal(b'-')?;
        let day = self.digits(2)?;
        let valid = (1..=12).contains(&month) && day >= 1 && day <= days_in(year, month);
        valid.then_some((year, month, day))
    }

    /// Go takes a comma as well as a point.
    fn fraction(&mut self) -> u32 {
        let count = self.rest.iter().skip(1).take_while(|byte| byte.is_ascii_digit()).count();
        if !matches!(self.rest.first(), Some(b'.' | b',')) || count == 0 {
            return 0;
        }
        let digits = &self.rest[1..=count];
        self.rest = &self.rest[count + 1..];
        (0..9)
            .fold(0, |nanos, index| nanos * 10 + digits.get(index).map_or(0, |digit| u32::from(digit - b'0')))
    }

    fn offset(&mut self) -> Option<i64> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        let sign = match first {
            b'Z' => return Some(0),
            b'+' => 1,
            b'-' => -1,
            _ => return None,
        };
        let hours = self.digits(2)?;
        self.literal(b':')?;
        let minutes = self.digits(2)?;
        (hours <= 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
    }
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01 in the proleptic Gregorian calendar (Howard Hinnant's algorithm).
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let shifted = (month + 9) % 12;
    let day_of_year = (153 * shifted + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

const UNITS: &[(&str, i64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", NANOS),
    ("m", 60 * NANOS),
    ("h", 3600 * NANOS),
];

/// Reads a length of time as Go's `time.ParseDuration` does, in nanoseconds.
pub fn parse_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let whole_end = rest.bytes().take_while(u8::is_ascii_digit).count();
        let whole: u64 = if whole_end == 0 { 0 } else { rest[..whole_end].parse().ok()? };
        let mut after = &rest[whole_end..];
        let (mut fraction, mut scale) = (0u64, 1f64);
        let mut fraction_digits = 0;
        if let Some(tail) = after.strip_prefix('.') {
            fraction_digits = tail.bytes().take_while(u8::is_ascii_digit).count();
            for digit in tail.bytes().take(fraction_digits) {
                let Some(next) =
                    fraction.checked_mul(10).and_then(|f| f.checked_add(u64::from(digit - b'0')))
                else {
                    break;
                };
                if next > 1 << 63 {
                    break;
                }
                fraction = next;
                scale *= 10.0;
            }
            after = &tail[fraction_digits..];
        }
        if whole_end == 0 && fraction_digits == 0 {
            return None;
        }
        let unit_end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
        let unit = UNITS.iter().find(|(name, _)| *name == &after[..unit_end])?.1 as u64;
        let mut value = whole.checked_mul(unit).filter(|value| *value <= 1 << 63)?;
        if fraction > 0 {
            value = value.checked_add((fraction as f64 * (unit as f64 / scale)) as u64)?;
        }
        total = total.checked_add(value).filter(|total| *total <= 1 << 63)?;
        rest = &after[unit_end..];
    }
    if negative {
        return Some((total as i128).checked_neg()? as i64);
    }
    i64::try_from(total).ok()
}

/// As Go prints a length of time: `1h0m0.5s`.
pub fn go_duration(nanos: i64) -> String {
    if nanos == 0 {
        return "0s".to_owned();
    }
    let sign = if nanos < 0 { "-" } else { "" };
    let magnitude = nanos.unsigned_abs();
    let with_unit = |unit: u64, name: &str| {
        let fraction = format!("{:09}", magnitude % unit * (NANOS as u64 / unit));
        let fraction = fraction.trim_end_matches('0');
        let point = if fraction.is_empty() { "" } else { "." };
        format!("{sign}{}{point}{fraction}{name}", magnitude / unit)
    };
    match magnitude {
        0..1_000 => format!("{sign}{magnitude}ns"),
        1_000..1_000_000 => with_unit(1_000, "µs"),
        1_000_000..1_000_000_000 => with_unit(1_000_000, "ms"),
        _ => {
            let seconds = magnitude / NANOS as u64;
            let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
            let fraction = format!("{:09}", magnitude % NANOS as u64);
            let fraction = fraction.trim_end_matches('0');
            let point = if fraction.is_empty() { "" } else { "." };
            let mut text = sign.to_owned();
            if hours > 0 {
                let _ = write!(text, "{hours}h");
            }
            if seconds >= 60 {
                let _ = write!(text, "{minutes}m");
            }
            let _ = write!(text, "{}{point}{fraction}s", seconds % 60);
            text
        }
    }
}

/// As CEL writes a length of time: seconds, as few digits as identify the nearest double.
pub fn cel_duration(nanos: i64) -> String {
    let seconds = (nanos / NANOS) as f64 + (nanos % NANOS) as f64 / 1e9;
    format!("{seconds}s")
}

/// Reads a length of time as OpenAPI's `format: duration` does: as Go, or as numbers with spelt units (`2 days`).
pub fn parse_schema_duration(text: &str) -> Result<i64, String> {
    if let Some(nanos) = parse_duration(text) {
        return Ok(nanos);
    }
    const UNITS: &[(&[&str], i64)] = &[
        (&["ns", "nano"], 1),
        (&["us", "µs", "micro"], 1_000),
        (&["ms", "milli"], 1_000_000),
        (&["s", "sec"], NANOS),
        (&["m", "min"], 60 * NANOS),
        (&["h", "hr", "hour"], 3600 * NANOS),
        (&["d", "day"], DAY * NANOS),
        (&["w", "wk", "week"], 7 * DAY * NANOS),
    ];
    let mut total: Option<i64> = None;
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let digits = &rest[start..];
        let digits_end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        let after = digits[digits_end..].trim_start_matches([' ', '\t', '\n', '\r', '\u{c}']);
        let unit_end = after.find(|c: char| !c.is_ascii_alphabetic() && c != 'µ').unwrap_or(after.len());
        rest = &after[unit_end..];
        if unit_end == 0 {
            continue;
        }
        let factor: i64 = digits[..digits_end].parse().map_err(|_| {
            format!("strconv.Atoi: parsing \"{}\": value out of range", &digits[..digits_end])
        })?;
        let unit = after[..unit_end].to_lowercase();
        for (variants, multiplier) in UNITS {
            let last = variants.len() - 1;
            for (index, variant) in variants.iter().enumerate() {
                if (index == last && unit.starts_with(variant)) || *variant == unit {
                    total = Some(total.unwrap_or(0).wrapping_add(factor.wrapping_mul(*multiplier)));
                }
            }
        }
    }
    total.ok_or_else(|| format!("unable to parse {text} as duration"))
}

impl Time {
    /// Reads an instant as OpenAPI's `format: date-time` does: RFC 3339, or without an offset.
    pub fn parse_schema_date_time(text: &str) -> Result<Time, String> {
        if text.is_empty() {
            return Ok(Time { seconds: 0, nanos: 0, offset: 0 });
        }
        Time::parse_rfc3339(text).or_else(|| Time::parse_rfc3339(&format!("{text}Z"))).ok_or_else(|| {
            format!("parsing time {} as \"2006-01-02T15:04:05\": cannot parse", crate::number::quote(text))
        })
    }
}
