//! Quantities: fixed-point numbers with a suffix, `100m`, `1.5Gi`, `12e6`.
//!
//! A quantity keeps the kind of suffix it was written with and prints in canonical form: no fraction, the largest
//! suffix that loses nothing. As upstream does, one that was already written without a fraction and about canonical
//! prints as it was written.

use std::{cmp::Ordering, fmt, str::FromStr};

use compact_str::CompactString;

/// Nothing is finer than a billionth.
const FINEST: i32 = -9;
/// Up to this many digits upstream computes in 64 bits, and then may keep the text.
const FAST_DIGITS: i32 = 18;
const MAX_BINARY: i128 = i64::MAX as i128;
/// What an `i128` holds in any case.
const SAFE_DIGITS: usize = 38;

/// Which suffixes a quantity prints with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `12e6`
    DecimalExponent,
    /// `12Mi`
    BinarySi,
    /// `12M`
    DecimalSi,
}

/// A number `mantissa · 10^scale`.
#[derive(Clone, Debug)]
pub struct Quantity {
    mantissa: i128,
    scale: i32,
    format: Format,
    /// The text it was written as, where that is what it prints as.
    text: Option<CompactString>,
}

/// Says why a text is no quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    #[error("unable to parse numeric part of quantity")]
    Number,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

const DECIMAL_SUFFIXES: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY_SUFFIXES: [(&str, i32); 6] =
    [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

impl Quantity {
    pub const ZERO: Quantity = Quantity { mantissa: 0, scale: 0, format: Format::DecimalSi, text: None };

    /// A whole number.
    pub fn new(value: i64, format: Format) -> Self {
        Self { mantissa: value.into(), scale: 0, format, text: None }
    }

    /// Thousandths.
    pub fn from_milli(value: i64, format: Format) -> Self {
        Self { mantissa: value.into(), scale: -3, format, text: None }
    }

    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        let parts = Parts::split(text)?;
        let (base, exponent, format) = interpret(parts.suffix).ok_or(QuantityError::Suffix)?;
        if let Some(quantity) = parts.in_64_bits(text, base, exponent, format) {
            return Ok(quantity);
        }
        parts.precisely(base, exponent, format)
    }

    pub fn format(&self) -> Format {
        self.format
    }

    pub fn is_zero(&self) -> bool {
        self.mantissa == 0
    }

    pub fn is_negative(&self) -> bool {
        self.mantissa < 0
    }

    /// The whole number at or next above in size; at most what 64 bits hold.
    pub fn value(&self) -> i64 {
        self.scaled_value(0)
    }

    /// As [`Quantity::value`], in thousandths.
    pub fn milli_value(&self) -> i64 {
        self.scaled_value(-3)
    }

    /// The value, if it is a whole number as it stands and fits; `1.0` is written with a fraction and is none.
    pub fn as_integer(&self) -> Option<i64> {
        let up = u32::try_from(self.scale).ok()?;
        i64::try_from(multiply_by_power(self.mantissa, up)?).ok()
    }

    /// The value as a double, rounded twice as upstream does.
    pub fn approximately(&self) -> f64 {
        if self.scale == 0 {
            return self.mantissa as f64;
        }
        self.mantissa as f64 * 10f64.powi(self.scale)
    }

    fn scaled_value(&self, scale: i32) -> i64 {
        let scaled = match self.scale.checked_sub(scale) {
            Some(up) if up >= 0 => multiply_by_power(self.mantissa, up as u32).unwrap_or(self.extreme()),
            Some(down) => divide_away_from_zero(self.mantissa, down.unsigned_abs()),
            None => self.extreme(),
        };
        scaled.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    fn extreme(&self) -> i128 {
        if self.mantissa < 0 { i128::MIN } else { i128::MAX }
    }

    /// The sum; zero takes the other's format. A sum beyond 38 digits stops there.
    pub fn add(&self, other: &Quantity) -> Quantity {
        let format = if self.is_zero() { other.format } else { self.format };
        if self.is_zero() || other.is_zero() {
            let sum = if self.is_zero() { other } else { self };
            return Quantity { format, text: None, ..sum.clone() };
        }
        let scale = self.scale.min(other.scale);
        let at = |quantity: &Quantity| {
            let up = quantity.scale.saturating_sub(scale).unsigned_abs();
            multiply_by_power(quantity.mantissa, up).unwrap_or(quantity.extreme())
        };
        Quantity { mantissa: at(self).saturating_add(at(other)), scale, format, text: None }
    }

    /// The difference; zero takes the other's format.
    pub fn sub(&self, other: &Quantity) -> Quantity {
        self.add(&other.negated())
    }

    pub fn negated(&self) -> Quantity {
        Quantity { mantissa: self.mantissa.saturating_neg(), text: None, ..self.clone() }
    }

    fn canonical(&self) -> (i128, String) {
        let whole = multiply_by_power(self.mantissa, self.scale.max(0).unsigned_abs());
        let is_whole = self.scale >= 0 || divides(self.mantissa, self.scale.unsigned_abs());
        if self.format == Format::BinarySi && is_whole && !self.is_within_1024() {
            let value = match self.scale {
                0.. => whole.unwrap_or(self.extreme()),
                below => divide_away_from_zero(self.mantissa, below.unsigned_abs()),
            };
            let (mantissa, times) = without_factors(value, 1024);
            let suffix = BINARY_SUFFIXES.iter().find(|(_, exponent)| *exponent == times * 10);
            return (mantissa, suffix.map_or("", |(suffix, _)| suffix).to_owned());
        }
        let (mut mantissa, times) = without_factors(self.mantissa, 10);
        let mut exponent = self.scale.saturating_add(times);
        let extra = exponent.rem_euclid(3);
        mantissa = multiply_by_power(mantissa, extra.unsigned_abs()).unwrap_or(self.extreme());
        exponent -= extra;
        if self.format == Format::DecimalExponent {
            let suffix = if exponent == 0 { String::new() } else { format!("e{exponent}") };
            return (mantissa, suffix);
        }
        // Above exa there is no suffix; upstream leaves it out.
        let suffix =
            DECIMAL_SUFFIXES.iter().find(|(_, known)| *known == exponent).map_or("", |(suffix, _)| suffix);
        (mantissa, suffix.to_owned())
    }

    fn is_within_1024(&self) -> bool {
        let bound = Quantity::new(1024, Format::DecimalSi);
        *self < bound && *self > bound.negated()
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = &self.text {
            return f.write_str(text);
        }
        if self.is_zero() {
            return f.write_str("0");
        }
        let (mantissa, suffix) = self.canonical();
        write!(f, "{mantissa}{suffix}")
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// By value, whatever the format.
impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        let signs = self.mantissa.signum().cmp(&other.mantissa.signum());
        if signs != Ordering::Equal || self.is_zero() {
            return signs;
        }
        let up = i64::from(self.scale) - i64::from(other.scale);
        let lifted =
            |mantissa: i128, up: i64| u32::try_from(up).ok().and_then(|up| multiply_by_power(mantissa, up));
        if up >= 0 {
            return lifted(self.mantissa, up).unwrap_or(self.extreme()).cmp(&other.mantissa);
        }
        self.mantissa.cmp(&lifted(other.mantissa, -up).unwrap_or(other.extreme()))
    }
}

fn interpret(suffix: &str) -> Option<(u32, i32, Format)> {
    if let Some((_, exponent)) = DECIMAL_SUFFIXES.iter().find(|(known, _)| *known == suffix) {
        return Some((10, *exponent, Format::DecimalSi));
    }
    if let Some((_, exponent)) = BINARY_SUFFIXES.iter().find(|(known, _)| *known == suffix) {
        return Some((2, *exponent, Format::BinarySi));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    Some((10, exponent, Format::DecimalExponent))
}

/// A quantity's text, taken apart.
struct Parts<'a> {
    negative: bool,
    /// Digits before the point, without leading zeros; at least one.
    whole: &'a str,
    /// Digits after the point.
    fraction: &'a str,
    suffix: &'a str,
    /// Whether there is any digit before the suffix.
    is_number: bool,
}

impl<'a> Parts<'a> {
    fn split(text: &'a str) -> Result<Self, QuantityError> {
        let negative = text.starts_with('-');
        let rest = text.strip_prefix(['-', '+']).unwrap_or(text).trim_start_matches('0');
        let (whole, rest) = split_digits(rest);
        let whole = if whole.is_empty() { "0" } else { whole };
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => split_digits(rest),
            None => ("", rest),
        };
        let exponent = suffix.trim_start_matches(|c: char| "eEinumkKMGTP".contains(c));
        let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        if !exponent.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(QuantityError::Format);
        }
        let is_number = text[..text.len() - suffix.len()].contains(|c: char| c.is_ascii_digit());
        Ok(Self { negative, whole, fraction, suffix, is_number })
    }

    /// Upstream's short way, which is also what decides whether the text is kept.
    fn in_64_bits(&self, text: &str, base: u32, exponent: i32, format: Format) -> Option<Quantity> {
        let digits = i32::try_from(self.whole.len() + self.fraction.len()).ok()?;
        let (precision, scale, factor) = match base {
            10 => (FAST_DIGITS - digits, exponent, 1),
            _ if self.fraction.is_empty() => (15 - digits - exponent * 3 / 10 - 1, 0, 1i64 << exponent),
            _ => return None,
        };
        let scale = scale.checked_sub(self.fraction.len() as i32)?;
        if precision < 0 || scale < FINEST {
            return None;
        }
        let shifted = format!("{}{}", self.whole, self.fraction);
        let number: i64 = shifted.parse().ok()?;
        let value = number.checked_mul(factor)?;
        let keeps_text = match base {
            10 => scale % 3 == 0 && !shifted.ends_with("000") && !shifted.starts_with('0'),
            _ => number & 7 != 0,
        };
        Some(Quantity {
            mantissa: if self.negative { -i128::from(value) } else { value.into() },
            scale,
            format,
            text: keeps_text.then(|| text.into()),
        })
    }

    fn precisely(&self, base: u32, exponent: i32, format: Format) -> Result<Quantity, QuantityError> {
        // The short way takes a suffix alone for zero; upstream's long way does not.
        if !self.is_number {
            return Err(QuantityError::Number);
        }
        let mut fraction = self.fraction.trim_end_matches('0');
        if base == 2 {
            // Digits after the point count as long as the product fits; 2^10 has just over three digits.
            let room =
                SAFE_DIGITS.saturating_sub(self.whole.len() + exponent.unsigned_abs() as usize / 10 * 3 + 2);
            fraction = &fraction[..fraction.len().min(room)];
        }
        let shifted = format!("{}{fraction}", self.whole);
        let shifted = shifted.trim_start_matches('0');
        let mut scale = i32::try_from(fraction.len()).map_err(|_| QuantityError::Number)?;
        scale = if base == 10 { exponent.saturating_sub(scale) } else { -scale };
        // What is finer than the finest only says whether to round up.
        let surplus = (i64::from(FINEST) - i64::from(scale)).clamp(0, 1 << 30) as usize;
        let mut mantissa = match base {
            10 => round_up(shifted, surplus)?,
            // What does not fit is capped below.
            _ => divide_away_from_zero(
                parse_digits(shifted).unwrap_or(i128::MAX).saturating_mul(1 << exponent),
                surplus as u32,
            ),
        };
        scale = scale.max(FINEST);
        let mut format = format;
        if format == Format::BinarySi {
            let unit = multiply_by_power(1, scale.unsigned_abs()).unwrap_or(i128::MAX);
            let most = MAX_BINARY.saturating_mul(unit);
            (mantissa, scale) = if mantissa > most { (MAX_BINARY, 0) } else { (mantissa, scale) };
            if mantissa > 0 && scale < 0 && mantissa < unit {
                format = Format::DecimalSi;
            }
        }
        let mantissa = if self.negative { -mantissa } else { mantissa };
        Ok(Quantity { mantissa, scale, format, text: None })
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len()))
}

fn parse_digits(digits: &str) -> Result<i128, QuantityError> {
    if digits.is_empty() { Ok(0) } else { digits.parse().map_err(|_| QuantityError::Number) }
}

/// The number without its last `surplus` digits, one more if they were not all zero.
fn round_up(digits: &str, surplus: usize) -> Result<i128, QuantityError> {
    let (kept, dropped) = digits.split_at(digits.len().saturating_sub(surplus));
    let up = dropped.bytes().any(|byte| byte != b'0');
    parse_digits(kept)?.checked_add(up.into()).ok_or(QuantityError::Number)
}

fn multiply_by_power(mantissa: i128, power: u32) -> Option<i128> {
    if mantissa == 0 {
        return Some(0);
    }
    10i128.checked_pow(power).and_then(|factor| mantissa.checked_mul(factor))
}

fn divide_away_from_zero(mantissa: i128, power: u32) -> i128 {
    match 10i128.checked_pow(power) {
        Some(divisor) => mantissa / divisor + (mantissa % divisor).signum(),
        None => mantissa.signum(),
    }
}

fn divides(mantissa: i128, power: u32) -> bool {
    mantissa == 0 || 10i128.checked_pow(power).is_some_and(|divisor| mantissa % divisor == 0)
}

fn without_factors(mut mantissa: i128, factor: i128) -> (i128, i32) {
    let mut times = 0;
    while mantissa != 0 && mantissa % factor == 0 {
        mantissa /= factor;
        times += 1;
    }
    (mantissa, times)
}

#[cfg(test)]
mod tests;
