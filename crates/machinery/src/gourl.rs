//! URLs as Go's `net/url` takes them apart, and its words for what is none.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::gotext;

/// The parts of a URL that rules look at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Url {
    /// In lower case.
    pub scheme: String,
    /// Host and port.
    pub host: String,
    /// As it is written, with a password if there is one.
    pub user: Option<String>,
    pub path: String,
    /// As it is written, without the question mark.
    pub query: String,
    pub fragment: String,
}

impl Url {
    /// Reads a URL or a relative reference.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (before, fragment) = text.split_once('#').unwrap_or((text, ""));
        let mut url = parse(before, false).map_err(|error| told(before, &error))?;
        url.fragment = unescape(fragment, Part::Other).map_err(|error| told(text, &error))?;
        Ok(url)
    }

    /// Reads what stands in the first line of a request: an absolute URL or path, never with a fragment.
    pub fn parse_request(text: &str) -> Result<Self, String> {
        parse(text, true).map_err(|error| told(text, &error))
    }
}

fn told(text: &str, error: &str) -> String {
    format!("parse {}: {error}", gotext::quote(text))
}

fn parse(text: &str, in_request: bool) -> Result<Url, String> {
    if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    if text.is_empty() && in_request {
        return Err("empty url".to_owned());
    }
    let mut url = Url::default();
    if text == "*" {
        url.path = text.to_owned();
        return Ok(url);
    }
    let (scheme, rest) = split_scheme(text)?;
    url.scheme = scheme.to_lowercase();
    let (mut rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    url.query = query.to_owned();
    if !rest.starts_with('/') {
        if !scheme.is_empty() {
            return Ok(url);
        }
        if in_request {
            return Err("invalid URI for request".to_owned());
        }
        if rest.split('/').next().is_some_and(|segment| segment.contains(':')) {
            return Err("first path segment in URL cannot contain colon".to_owned());
        }
    }
    let has_authority = !scheme.is_empty() || !in_request && !rest.starts_with("///");
    if let Some(after) = rest.strip_prefix("//").filter(|_| has_authority) {
        let end = after.find('/').unwrap_or(after.len());
        rest = &after[end..];
        (url.user, url.host) = authority(&url.scheme, &after[..end])?;
    }
    url.path = unescape(rest, Part::Other)?;
    Ok(url)
}

fn split_scheme(text: &str) -> Result<(&str, &str), String> {
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => return Ok((&text[..at], &text[at + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

fn authority(scheme: &str, text: &str) -> Result<(Option<String>, String), String> {
    let Some((user, host)) = text.rsplit_once('@') else { return Ok((None, parse_host(scheme, text)?)) };
    let host = parse_host(scheme, host)?;
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte);
    if !user.bytes().all(is_valid) {
        return Err("net/url: invalid userinfo".to_owned());
    }
    for part in user.splitn(2, ':') {
        unescape(part, Part::Other)?;
    }
    Ok((Some(user.to_owned()), host))
}

fn parse_host(scheme: &str, host: &str) -> Result<String, String> {
    match host.rfind('[') {
        Some(0) => return parse_literal(host),
        Some(_) => return Err("invalid IP-literal".to_owned()),
        None => {}
    }
    if let (Some(first), Some(last)) = (host.find(':'), host.rfind(':')) {
        // Lists of hosts are known for other schemes.
        let at = if matches!(scheme, "http" | "https") { first } else { last };
        check_port(&host[at..])?;
    }
    unescape(host, Part::Host)
}

/// `[fe80::1%25en0]:80`
fn parse_literal(host: &str) -> Result<String, String> {
    let Some(close) = host.rfind(']') else { return Err("missing ']' in host".to_owned()) };
    let port = &host[close + 1..];
    check_port(port)?;
    let inside = &host[1..close];
    let (address, zone) = inside.split_at(inside.find("%25").unwrap_or(inside.len()));
    let address = unescape(address, Part::Host)?;
    let zone = unescape(zone, Part::Zone)?;
    if address.parse::<Ipv4Addr>().is_ok() {
        return Err("invalid IP-literal".to_owned());
    }
    if address.parse::<Ipv6Addr>().is_err() || zone == "%" {
        let address = gotext::quote(&format!("{address}{zone}"));
        return Err(format!("invalid host: ParseAddr({address}): unable to parse IP"));
    }
    Ok(format!("[{address}{zone}]{port}"))
}

fn check_port(text: &str) -> Result<(), String> {
    let is_port = text.is_empty()
        || text.strip_prefix(':').is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    if is_port { Ok(()) } else { Err(format!("invalid port {} after host", gotext::quote(text))) }
}

#[derive(Clone, Copy, PartialEq)]
enum Part {
    Host,
    Zone,
    Other,
}

/// Resolves `%41`; bytes that make no text become the replacement character, which no rule looks at.
fn unescape(text: &str, part: Part) -> Result<String, String> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        if *byte != b'%' {
            if part != Part::Other && byte.is_ascii() && !is_host_byte(*byte) {
                let shown = gotext::quote(&(*byte as char).to_string());
                return Err(format!("invalid character {shown} in host name"));
            }
            out.push(*byte);
            at += 1;
            continue;
        }
        let escape = &bytes[at..bytes.len().min(at + 3)];
        let digit = |at: usize| escape.get(at).and_then(|byte| (*byte as char).to_digit(16));
        let value = digit(1).zip(digit(2)).map(|(high, low)| (high * 16 + low) as u8);
        let allowed = value.filter(|value| match part {
            Part::Host => *value >= 0x80 || escape == b"%25",
            Part::Zone => escape == b"%25" || *value == b' ' || is_host_byte(*value),
            Part::Other => true,
        });
        let Some(value) = allowed else {
            let shown = gotext::quote(&String::from_utf8_lossy(escape));
            return Err(format!("invalid URL escape {shown}"));
        };
        out.push(value);
        at += 3;
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}

fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!$&'()*+,;=:[]<>\"-_.~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let url = Url::parse("HTTPS://me:pw@example.com:80/a%20b?x=y#f").unwrap();
        let user = Some("me:pw".to_owned());
        assert_eq!(
            url,
            Url {
                scheme: "https".into(),
                host: "example.com:80".into(),
                user,
                path: "/a b".into(),
                query: "x=y".into(),
                fragment: "f".into()
            }
        );
    }

    #[test]
    fn mistakes_read_as_gos() {
        for (text, error) in [
            ("::", "parse \"::\": missing protocol scheme"),
            ("a:b/c:d", ""),
            ("1a:b", "parse \"1a:b\": first path segment in URL cannot contain colon"),
            ("http://a b", "parse \"http://a b\": invalid character \" \" in host name"),
            ("http://a:x", "parse \"http://a:x\": invalid port \":x\" after host"),
            ("http://%zz", "parse \"http://%zz\": invalid URL escape \"%zz\""),
            ("http://[::1", "parse \"http://[::1\": missing ']' in host"),
            ("http://[::1]:80/", ""),
            ("http://[1.2.3.4]", "parse \"http://[1.2.3.4]\": invalid IP-literal"),
            ("http://a/%2", "parse \"http://a/%2\": invalid URL escape \"%2\""),
            ("a\tb", "parse \"a\\tb\": net/url: invalid control character in URL"),
            ("", ""),
        ] {
            assert_eq!(Url::parse(text).err().unwrap_or_default(), error, "{text}");
        }
        for (text, is_good) in [("/a", true), ("a", false), ("", false), ("mailto:x", true), ("//a/b", true)]
        {
            assert_eq!(Url::parse_request(text).is_ok(), is_good, "{text}");
        }
    }
}
