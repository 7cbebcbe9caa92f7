//! IP addresses and ranges of them, as strictly and as leniently as upstream reads them.
//!
//! Old fields took addresses with leading zeros and IPv4 addresses in the clothes of IPv6. They still take them where
//! a stored object has them, and refuse them otherwise. New fields want the canonical form.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::json;

use super::Path;
use crate::{field_error::Cause, gotext};

/// Go's parsers refuse numbers from here on, whatever follows.
const BIG: u32 = 0xFF_FFFF;
const GROUPS: usize = 8;

/// Digits up to the first character that is none: the number and how many bytes it took.
fn leading_number(text: &str, radix: u32) -> Option<(u32, usize)> {
    let mut value = 0;
    let mut len = 0;
    for digit in text.chars().map_while(|c| c.to_digit(radix)) {
        value = value * radix + digit;
        len += 1;
        if value >= BIG {
            return None;
        }
    }
    (len > 0).then_some((value, len))
}

fn ipv4_sloppy(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        let (value, len) = leading_number(part, 10)?;
        *octet = u8::try_from(value).ok().filter(|_| len == part.len())?;
    }
    parts.next().is_none().then(|| octets.into())
}

/// The groups before or after `::`; an IPv4 address counts as the last two.
fn groups_sloppy(text: &str, may_end_in_ipv4: bool) -> Option<Vec<u16>> {
    let mut groups = Vec::new();
    if text.is_empty() {
        return Some(groups);
    }
    let mut parts = text.split(':').peekable();
    while let Some(part) = parts.next() {
        if may_end_in_ipv4 && parts.peek().is_none() && part.contains('.') {
            let [a, b, c, d] = ipv4_sloppy(part)?.octets();
            groups.extend([u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])]);
            break;
        }
        let (value, len) = leading_number(part, 16)?;
        groups.push(u16::try_from(value).ok().filter(|_| len == part.len())?);
        if groups.len() > GROUPS {
            return None;
        }
    }
    Some(groups)
}

fn ipv6_sloppy(text: &str) -> Option<Ipv6Addr> {
    let groups = match text.split_once("::") {
        None => groups_sloppy(text, true)?,
        Some((before, after)) => {
            let mut groups = groups_sloppy(before, false)?;
            let after = groups_sloppy(after, true)?;
            // The ellipsis stands for one group at least.
            let missing = GROUPS.checked_sub(groups.len() + after.len()).filter(|missing| *missing > 0)?;
            groups.extend(std::iter::repeat_n(0, missing));
            groups.extend(after);
            groups
        }
    };
    <[u16; GROUPS]>::try_from(groups).ok().map(Ipv6Addr::from)
}

/// An address, leading zeros allowed; an IPv4 address mapped into IPv6 is one of IPv4.
pub fn parse_ip_sloppy(text: &str) -> Option<IpAddr> {
    match text.find(['.', ':']).map(|at| text.as_bytes()[at]) {
        Some(b'.') => ipv4_sloppy(text).map(IpAddr::V4),
        Some(_) => ipv6_sloppy(text).map(|ip| IpAddr::V6(ip).to_canonical()),
        None => None,
    }
}

fn is_mapped(ip: &IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some())
}

/// The address and the network, as `ip/length` both.
pub fn parse_cidr_sloppy(text: &str) -> Option<(IpAddr, IpAddr, u8)> {
    let (address, length) = text.split_once('/')?;
    let v4 = ipv4_sloppy(address).map(IpAddr::V4);
    let ip = v4.or_else(|| ipv6_sloppy(address).map(IpAddr::V6))?;
    let (bits, len) = leading_number(length, 10)?;
    let most = if ip.is_ipv4() { 32 } else { 128 };
    let bits = u8::try_from(bits).ok().filter(|bits| len == length.len() && *bits <= most)?;
    let network = masked(ip, bits);
    // Go shows a mapped network as one of IPv4, with the mask's last four bytes.
    let shown = network.to_canonical();
    let shown_bits = if shown.is_ipv4() && network.is_ipv6() { bits.saturating_sub(96) } else { bits };
    Some((ip.to_canonical(), shown, shown_bits))
}

fn masked(ip: IpAddr, bits: u8) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            Ipv4Addr::from(u32::from(ip) & mask).into()
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            Ipv6Addr::from(u128::from(ip) & mask).into()
        }
    }
}

fn invalid(value: &str, path: &Path<'_>, detail: &str) -> Cause {
    Cause::invalid(path, &json!(value), detail)
}

fn not_canonical(value: &str, path: &Path<'_>, canonical: &str) -> Option<Cause> {
    let detail = || format!("must be in canonical form ({})", gotext::quote(canonical));
    (value != canonical).then(|| invalid(value, path, &detail()))
}

/// An address in a field older than strict rules; `old` are the values the stored object has.
pub fn legacy_ip(value: &str, path: &Path<'_>, old: &[&str]) -> Option<Cause> {
    if old.contains(&value) { None } else { strict_ip(value, path).err() }
}

fn strict_ip(value: &str, path: &Path<'_>) -> Result<IpAddr, Cause> {
    let Some(ip) = parse_ip_sloppy(value) else {
        let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        return Err(invalid(value, path, detail));
    };
    match value.parse::<IpAddr>() {
        Err(_) => Err(invalid(value, path, "must not have leading 0s")),
        Ok(strict) if is_mapped(&strict) => {
            Err(invalid(value, path, "must not be an IPv4-mapped IPv6 address"))
        }
        Ok(_) => Ok(ip),
    }
}

/// An address in its one canonical form.
pub fn ip(value: &str, path: &Path<'_>) -> Option<Cause> {
    match strict_ip(value, path) {
        Ok(ip) => not_canonical(value, path, &ip.to_string()),
        Err(cause) => Some(cause),
    }
}

/// A network in a field older than strict rules; `old` are the values the stored object has.
pub fn legacy_cidr(value: &str, path: &Path<'_>, old: &[&str]) -> Option<Cause> {
    if old.contains(&value) { None } else { strict_cidr(value, path).err() }
}

fn parse_cidr_strict(value: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = value.split_once('/')?;
    let has_leading_zero = length.len() > 1 && length.starts_with('0');
    let length: u8 = length.parse().ok().filter(|_| !has_leading_zero)?;
    Some((address.parse().ok()?, length))
}

fn strict_cidr(value: &str, path: &Path<'_>) -> Result<String, Cause> {
    let Some((_, network, bits)) = parse_cidr_sloppy(value) else {
        let detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
        return Err(invalid(value, path, detail));
    };
    let detail = match parse_cidr_strict(value) {
        None => "must not have leading 0s in IP or prefix length",
        Some((ip, _)) if is_mapped(&ip) => "must not have an IPv4-mapped IPv6 address",
        Some((ip, bits)) if masked(ip, bits) != ip => "must not have bits set beyond the prefix length",
        Some(_) => return Ok(format!("{network}/{bits}")),
    };
    Err(invalid(value, path, detail))
}

/// A network in its one canonical form.
pub fn cidr(value: &str, path: &Path<'_>) -> Option<Cause> {
    match strict_cidr(value, path) {
        Ok(canonical) => not_canonical(value, path, &canonical),
        Err(cause) => Some(cause),
    }
}

/// An address with the length of its network.
pub fn interface_address(value: &str, path: &Path<'_>) -> Option<Cause> {
    let Some((ip, _, _)) = parse_cidr_sloppy(value) else {
        let detail = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)";
        return Some(invalid(value, path, detail));
    };
    let written: u8 = value.rsplit('/').next().and_then(|bits| bits.parse().ok()).unwrap_or(0);
    let bits = if ip.is_ipv4() && written > 32 { written.saturating_sub(96) } else { written };
    not_canonical(value, path, &format!("{ip}/{bits}"))
}

/// What the author of an accepted address in an old field should know.
pub fn ip_warnings(value: &str, path: &Path<'_>) -> Option<String> {
    let ip = parse_ip_sloppy(value)?;
    let quoted = gotext::quote(value);
    match value.parse::<IpAddr>().ok().filter(|strict| !is_mapped(strict)) {
        None => {
            let better = gotext::quote(&ip.to_string());
            Some(format!("{path}: non-standard IP address {quoted} is invalid: use {better}"))
        }
        Some(strict) if strict.is_ipv6() && strict.to_string() != value => {
            let better = gotext::quote(&strict.to_string());
            Some(format!("{path}: IPv6 address {quoted} should be in RFC 5952 canonical format ({better})"))
        }
        Some(_) => None,
    }
}

/// What the author of an accepted network in an old field should know.
pub fn cidr_warnings(value: &str, path: &Path<'_>) -> Vec<String> {
    let Some((ip, network, bits)) = parse_cidr_sloppy(value) else { return Vec::new() };
    let quoted = gotext::quote(value);
    let shown = gotext::quote(&format!("{network}/{bits}"));
    let mut warnings = Vec::new();
    if ip != network {
        let most = if value.contains(':') { 128 } else { 32 };
        let single = gotext::quote(&format!("{ip}/{most}"));
        warnings.push(format!(
            "{path}: CIDR value {quoted} is ambiguous in this context (should be {shown} or {single}?)"
        ));
    }
    let strict = parse_cidr_strict(value).filter(|(ip, _)| !is_mapped(ip));
    match strict {
        None => {
            warnings.push(format!("{path}: non-standard CIDR value {quoted} is invalid: use {shown}"));
        }
        Some((ip, bits)) if warnings.is_empty() && ip.is_ipv6() && format!("{ip}/{bits}") != value => {
            let better = gotext::quote(&format!("{ip}/{bits}"));
            warnings.push(format!(
                "{path}: IPv6 CIDR value {quoted} should be in RFC 5952 canonical format ({better})"
            ));
        }
        Some(_) => {}
    }
    warnings
}
