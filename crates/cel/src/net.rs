//! Addresses and prefixes of networks, read and judged as Go's `net/netip` does.

use std::{
    fmt,
    net::{Ipv4Addr, Ipv6Addr},
};

use crate::number::quote;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Address {
    V4(Ipv4Addr),
    V6(Ipv6Addr),
}

/// An address with the number of leading bits that name a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    pub address: Address,
    pub bits: u8,
}

struct Fault<'a> {
    message: &'static str,
    at: &'a str,
}

fn fault<'a, T>(message: &'static str, at: &'a str) -> Result<T, Fault<'a>> {
    Err(Fault { message, at })
}

impl Address {
    /// Reads an address and its zone.
    fn parse_with_zone(text: &str) -> Result<(Address, &str), String> {
        let parsed = match text.find(['.', ':', '%']).map(|index| &text[index..=index]) {
            Some(".") => parse_v4(text).map(|bytes| (Address::V4(bytes.into()), "")),
            Some(":") => parse_v6(text),
            Some(_) => fault("missing IPv6 address", ""),
            None => fault("unable to parse IP", ""),
        };
        parsed.map_err(|fault| {
            let at = if fault.at.is_empty() { String::new() } else { format!(" (at {})", quote(fault.at)) };
            format!("ParseAddr({}): {}{at}", quote(text), fault.message)
        })
    }

    /// Reads an address as Kubernetes' library takes it: without a zone, and no IPv4 in disguise.
    pub fn parse(text: &str) -> Result<Address, String> {
        let (address, zone) = Address::parse_with_zone(text).map_err(|error| {
            format!("IP Address {} parse error during conversion from string: {error}", quote(text))
        })?;
        if !zone.is_empty() {
            return Err(format!("IP address {} with zone value is not allowed", quote(text)));
        }
        if address.is_mapped() {
            return Err(format!("IPv4-mapped IPv6 address {} is not allowed", quote(text)));
        }
        Ok(address)
    }

    /// Whether the text is an IPv6 address, with or without a zone; the error of reading it otherwise.
    pub(crate) fn check_v6_literal(text: &str) -> Result<bool, String> {
        Address::parse_with_zone(text).map(|(address, _)| matches!(address, Address::V6(_)))
    }

    fn is_mapped(&self) -> bool {
        matches!(self, Address::V6(address) if address.to_ipv4_mapped().is_some())
    }

    pub fn family(&self) -> i64 {
        match self {
            Address::V4(_) => 4,
            Address::V6(_) => 6,
        }
    }

    pub fn byte_length(&self) -> u64 {
        match self {
            Address::V4(_) => 4,
            Address::V6(_) => 16,
        }
    }

    pub fn is_unspecified(&self) -> bool {
        match self {
            Address::V4(address) => address.is_unspecified(),
            Address::V6(address) => address.is_unspecified(),
        }
    }

    pub fn is_loopback(&self) -> bool {
        match self {
            Address::V4(address) => address.is_loopback(),
            Address::V6(address) => address.is_loopback(),
        }
    }

    pub fn is_multicast(&self) -> bool {
        match self {
            Address::V4(address) => address.is_multicast(),
            Address::V6(address) => address.is_multicast(),
        }
    }

    pub fn is_link_local_multicast(&self) -> bool {
        match self {
            Address::V4(address) => address.octets()[..3] == [224, 0, 0],
            Address::V6(address) => address.segments()[0] & 0xff0f == 0xff02,
        }
    }

    pub fn is_link_local_unicast(&self) -> bool {
        match self {
            Address::V4(address) => address.is_link_local(),
            Address::V6(address) => address.segments()[0] & 0xffc0 == 0xfe80,
        }
    }

    /// Private addresses are global in Go's sense.
    pub fn is_global_unicast(&self) -> bool {
        let broadcast = matches!(self, Address::V4(address) if address.is_broadcast());
        !(broadcast
            || self.is_unspecified()
            || self.is_loopback()
            || self.is_multicast()
            || self.is_link_local_unicast())
    }

    /// The leading bits, left-aligned.
    fn leading(&self, bits: u8) -> u128 {
        let aligned = match self {
            Address::V4(address) => u128::from(address.to_bits()) << 96,
            Address::V6(address) => address.to_bits(),
        };
        if bits == 0 { 0 } else { aligned & (u128::MAX << (128 - u32::from(bits))) }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::V4(address) => write!(f, "{address}"),
            Address::V6(address) => write_v6(f, address.segments()),
        }
    }
}

/// As Go writes it: the first longest run of at least two zeros is left out.
fn write_v6(f: &mut fmt::Formatter<'_>, segments: [u16; 8]) -> fmt::Result {
    let (mut start, mut end) = (8, 8);
    for from in 0..8 {
        let to = (from..8).find(|index| segments[*index] != 0).unwrap_or(8);
        if to - from >= 2 && to - from > end - start {
            (start, end) = (from, to);
        }
    }
    let mut index = 0;
    while index < 8 {
        if index == start {
            f.write_str("::")?;
            index = end;
            continue;
        }
        if index > 0 && index != end {
            f.write_str(":")?;
        }
        write!(f, "{:x}", segments[index])?;
        index += 1;
    }
    Ok(())
}

impl Prefix {
    /// Reads a prefix as Kubernetes' library takes it.
    pub fn parse(text: &str) -> Result<Prefix, String> {
        let prefix = Prefix::parse_go(text).map_err(|reason| {
            let reason = format!("netip.ParsePrefix({}): {reason}", quote(text));
            format!("network address parse error during conversion from string: {reason}")
        })?;
        if prefix.address.is_mapped() {
            return Err(format!("IPv4-mapped IPv6 address {} is not allowed", quote(text)));
        }
        Ok(prefix)
    }

    fn parse_go(text: &str) -> Result<Prefix, String> {
        let Some((address, bits)) = text.rsplit_once('/') else { return Err("no '/'".to_owned()) };
        let (address, zone) = Address::parse_with_zone(address)?;
        if !zone.is_empty() {
            return Err("IPv6 zones cannot be present in a prefix".to_owned());
        }
        let bad = || format!("bad bits after slash: {}", quote(bits));
        if bits.len() > 1 && !bits.starts_with(|first: char| ('1'..='9').contains(&first)) {
            return Err(bad());
        }
        let number: i64 = bits.parse().map_err(|_| bad())?;
        let most = if matches!(address, Address::V4(_)) { 32 } else { 128 };
        match u8::try_from(number) {
            Ok(bits) if bits <= most => Ok(Prefix { address, bits }),
            _ => Err("prefix length out of range".to_owned()),
        }
    }

    pub fn contains(&self, address: &Address) -> bool {
        self.address.family() == address.family()
            && self.address.leading(self.bits) == address.leading(self.bits)
    }

    /// Whether every address of the other network is one of this.
    pub fn contains_prefix(&self, other: &Prefix) -> bool {
        self.bits <= other.bits && self.contains(&other.address)
    }

    pub fn masked(&self) -> Prefix {
        let leading = self.address.leading(self.bits);
        let address = match self.address {
            Address::V4(_) => Address::V4(Ipv4Addr::from_bits((leading >> 96) as u32)),
            Address::V6(_) => Address::V6(Ipv6Addr::from_bits(leading)),
        };
        Prefix { address, bits: self.bits }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

fn parse_v4(text: &str) -> Result<[u8; 4], Fault<'_>> {
    let bytes = text.as_bytes();
    let mut fields = [0; 4];
    let (mut value, mut position, mut digits) = (0u32, 0, 0);
    for (index, byte) in bytes.iter().enumerate() {
        match byte {
            b'0'..=b'9' => {
                if digits == 1 && value == 0 {
                    return fault("IPv4 field has octet with leading zero", "");
                }
                value = value * 10 + u32::from(byte - b'0');
                digits += 1;
                if value > 255 {
                    return fault("IPv4 field has value >255", "");
                }
            }
            b'.' => {
                let lone = index == 0 || index == bytes.len() - 1 || bytes[index - 1] == b'.';
                if lone {
                    return fault("IPv4 field must have at least one digit", &text[index..]);
                }
                if position == 3 {
                    return fault("IPv4 address too long", "");
                }
                fields[position] = value as u8;
                position += 1;
                value = 0;
                digits = 0;
            }
            _ => return fault("unexpected character", text.get(index..).unwrap_or(text)),
        }
    }
    if position < 3 {
        return fault("IPv4 address too short", "");
    }
    fields[3] = value as u8;
    Ok(fields)
}

fn parse_v6(text: &str) -> Result<(Address, &str), Fault<'_>> {
    let (mut rest, zone) = match text.split_once('%') {
        Some((_, "")) => return fault("zone must be a non-empty string", ""),
        Some((address, zone)) => (address, zone),
        None => (text, ""),
    };
    let mut bytes = [0u8; 16];
    let mut filled = 0;
    let mut ellipsis = None;
    if let Some(after) = rest.strip_prefix("::") {
        ellipsis = Some(0);
        rest = after;
        if rest.is_empty() {
            return Ok((Address::V6(Ipv6Addr::UNSPECIFIED), zone));
        }
    }
    while filled < 16 {
        let digits = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        if digits > 4 {
            return fault("each group must have 4 or less digits", rest);
        }
        if digits == 0 {
            return fault("each colon-separated field must have at least one digit", rest);
        }
        if rest.as_bytes().get(digits) == Some(&b'.') {
            if ellipsis.is_none() && filled != 12 {
                return fault("embedded IPv4 address must replace the final 2 fields of the address", rest);
            }
            if filled + 4 > 16 {
                return fault("too many hex fields to fit an embedded IPv4 at the end of the address", rest);
            }
            bytes[filled..filled + 4].copy_from_slice(&parse_v4(rest)?);
            rest = "";
            filled += 4;
            break;
        }
        let field = u16::from_str_radix(&rest[..digits], 16).unwrap_or(0);
        bytes[filled..filled + 2].copy_from_slice(&field.to_be_bytes());
        filled += 2;
        rest = &rest[digits..];
        if rest.is_empty() {
            break;
        }
        let Some(after) = rest.strip_prefix(':') else {
            return fault("unexpected character, want colon", rest);
        };
        if after.is_empty() {
            return fault("colon must be followed by more characters", rest);
        }
        rest = after;
        if let Some(after) = rest.strip_prefix(':') {
            if ellipsis.is_some() {
                return fault("multiple :: in address", rest);
            }
            ellipsis = Some(filled);
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
    }
    if !rest.is_empty() {
        return fault("trailing garbage after address", rest);
    }
    match ellipsis {
        None if filled < 16 => return fault("address string too short", ""),
        Some(_) if filled == 16 => return fault("the :: must expand to at least one field of zeros", ""),
        Some(at) => {
            let missing = 16 - filled;
            bytes.copy_within(at..filled, at + missing);
            bytes[at..at + missing].fill(0);
        }
        None => {}
    }
    Ok((Address::V6(Ipv6Addr::from(bytes)), zone))
}
