//! Writing DER: the few types a certificate is made of.

/// A tag, the length, and the content.
pub fn tagged(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut encoded = vec![tag];
    match content.len() {
        short @ 0..128 => encoded.push(short as u8),
        long => {
            let bytes = long.to_be_bytes();
            let significant = &bytes[bytes.iter().position(|byte| *byte != 0).unwrap_or(0)..];
            encoded.push(0x80 | significant.len() as u8);
            encoded.extend_from_slice(significant);
        }
    }
    encoded.extend_from_slice(content);
    encoded
}

pub fn sequence(parts: &[Vec<u8>]) -> Vec<u8> {
    tagged(0x30, &parts.concat())
}

/// In DER the members of a set stand in the order of their bytes.
pub fn set_of(mut members: Vec<Vec<u8>>) -> Vec<u8> {
    members.sort();
    tagged(0x31, &members.concat())
}

/// A number that is not negative, from its bytes, the first the most significant.
pub fn unsigned(bytes: &[u8]) -> Vec<u8> {
    let start = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len());
    let mut content = Vec::with_capacity(bytes.len() + 1);
    if bytes.get(start).is_none_or(|first| *first >= 0x80) {
        content.push(0);
    }
    content.extend_from_slice(&bytes[start..]);
    tagged(0x02, &content)
}

pub fn object_identifier(arcs: &[u64]) -> Vec<u8> {
    let mut content = Vec::new();
    let (first, rest) = match arcs {
        [first, second, rest @ ..] => (first * 40 + second, rest),
        _ => (0, [].as_slice()),
    };
    for arc in [first].iter().chain(rest) {
        let groups = (64 - arc.leading_zeros()).div_ceil(7).max(1);
        for group in (0..groups).rev() {
            let bits = (arc >> (7 * group)) as u8 & 0x7f;
            content.push(if group > 0 { bits | 0x80 } else { bits });
        }
    }
    tagged(0x06, &content)
}

pub fn bit_string(bytes: &[u8], unused_bits: u8) -> Vec<u8> {
    tagged(0x03, &[&[unused_bits], bytes].concat())
}

pub fn octet_string(bytes: &[u8]) -> Vec<u8> {
    tagged(0x04, bytes)
}

/// As Go writes texts: the plain alphabet of certificates where it is enough.
pub fn text(value: &str) -> Vec<u8> {
    let printable = |byte: u8| byte.is_ascii_alphanumeric() || b"'()+,-./ :=?".contains(&byte);
    tagged(if value.bytes().all(printable) { 0x13 } else { 0x0c }, value.as_bytes())
}

/// Two digits for the year until 2049, then four, as X.509 wants it.
pub fn time(at: jiff::Timestamp) -> Vec<u8> {
    let at = at.to_zoned(jiff::tz::TimeZone::UTC);
    let rest =
        format!("{:02}{:02}{:02}{:02}{:02}Z", at.month(), at.day(), at.hour(), at.minute(), at.second());
    match at.year() {
        year @ 1950..2050 => tagged(0x17, format!("{:02}{rest}", year % 100).as_bytes()),
        year => tagged(0x18, format!("{year:04}{rest}").as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_numbers_and_identifiers() {
        assert_eq!(tagged(4, &[1]), [4, 1, 1]);
        assert_eq!(tagged(4, &[0; 128])[..3], [4, 0x81, 128]);
        assert_eq!(tagged(4, &[0; 300])[..4], [4, 0x82, 1, 44]);
        assert_eq!(unsigned(&[0, 0, 0x80]), [2, 2, 0, 0x80]);
        assert_eq!(unsigned(&[0, 1]), [2, 1, 1]);
        assert_eq!(unsigned(&[]), [2, 1, 0]);
        assert_eq!(object_identifier(&[2, 5, 29, 15]), [6, 3, 0x55, 0x1d, 0x0f]);
        assert_eq!(object_identifier(&[1, 2, 840, 113549]), [6, 6, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d]);
    }

    #[test]
    fn texts_and_times() {
        assert_eq!(text("system:nodes")[0], 0x13);
        assert_eq!(text("a@b")[0], 0x0c);
        let at = |text: &str| text.parse::<jiff::Timestamp>().unwrap();
        assert_eq!(time(at("2049-12-31T23:59:59Z"))[2..], *b"491231235959Z");
        assert_eq!(time(at("2050-01-01T00:00:00Z"))[2..], *b"20500101000000Z");
    }
}
