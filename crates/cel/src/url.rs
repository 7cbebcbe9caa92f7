//! URLs, read and written as Go's `net/url` does.

use std::fmt;

use crate::{net::Address, number::quote};

#[derive(Debug, Clone, Default)]
pub struct Url {
    pub scheme: String,
    opaque: String,
    /// User name and password as they are written again.
    user: Option<String>,
    pub host: String,
    path: Vec<u8>,
    raw_path: String,
    omit_host: bool,
    force_query: bool,
    raw_query: String,
    fragment: Vec<u8>,
    raw_fragment: String,
}

/// What part of a URL is escaped: each allows other characters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Path,
    Host,
    Zone,
    User,
    Query,
    Fragment,
}

/// More parameters than these are none.
const MAX_QUERY_PARAMETERS: usize = 10_000;

impl Url {
    /// Reads a URL as Kubernetes' library does: it must be one a request can be sent to.
    pub fn parse(text: &str) -> Result<Url, String> {
        Url::check_request_uri(text)?;
        let (before, fragment) = text.split_once('#').unwrap_or((text, ""));
        let mut url = Url::parse_parts(before, false).map_err(|reason| describe(before, &reason))?;
        if !fragment.is_empty() {
            url.fragment = unescape(fragment, Part::Fragment).map_err(|reason| describe(text, &reason))?;
            if escape(&url.fragment, Part::Fragment) != fragment {
                url.raw_fragment = fragment.to_owned();
            }
        }
        Ok(url)
    }

    /// Whether a request can be sent to the URL.
    pub fn check_request_uri(text: &str) -> Result<(), String> {
        Url::parse_parts(text, true).map(drop).map_err(|reason| describe(text, &reason))
    }

    fn parse_parts(text: &str, via_request: bool) -> Result<Url, String> {
        if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
            return Err("net/url: invalid control character in URL".to_owned());
        }
        if text.is_empty() && via_request {
            return Err("empty url".to_owned());
        }
        let mut url = Url::default();
        if text == "*" {
            url.path = b"*".to_vec();
            return Ok(url);
        }
        let (scheme, mut rest) = split_scheme(text)?;
        url.scheme = scheme.to_lowercase();
        if rest.ends_with('?') && rest.matches('?').count() == 1 {
            url.force_query = true;
            rest = &rest[..rest.len() - 1];
        } else if let Some((before, query)) = rest.split_once('?') {
            url.raw_query = query.to_owned();
            rest = before;
        }
        if !rest.starts_with('/') {
            if !url.scheme.is_empty() {
                url.opaque = rest.to_owned();
                return Ok(url);
            }
            if via_request {
                return Err("invalid URI for request".to_owned());
            }
            if rest.split('/').next().is_some_and(|segment| segment.contains(':')) {
                return Err("first path segment in URL cannot contain colon".to_owned());
            }
        }
        let has_authority = !url.scheme.is_empty() || (!via_request && !rest.starts_with("///"));
        if has_authority && let Some(after) = rest.strip_prefix("//") {
            let end = after.find('/').unwrap_or(after.len());
            url.set_authority(&after[..end])?;
            rest = &after[end..];
        } else if !url.scheme.is_empty() && rest.starts_with('/') {
            url.omit_host = true;
        }
        url.path = unescape(rest, Part::Path)?;
        if escape(&url.path, Part::Path) != rest {
            url.raw_path = rest.to_owned();
        }
        Ok(url)
    }

    fn set_authority(&mut self, authority: &str) -> Result<(), String> {
        let Some((user, host)) = authority.rsplit_once('@') else {
            self.host = parse_host(&self.scheme, authority)?;
            return Ok(());
        };
        self.host = parse_host(&self.scheme, host)?;
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
        if !user.chars().all(allowed) {
            return Err("net/url: invalid userinfo".to_owned());
        }
        let mut written = String::new();
        for (index, part) in user.splitn(2, ':').enumerate() {
            if index > 0 {
                written.push(':');
            }
            written.push_str(&escape(&unescape(part, Part::User)?, Part::User));
        }
        self.user = Some(written);
        Ok(())
    }

    pub fn hostname(&self) -> &str {
        let host = self.split_port().0;
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    pub fn port(&self) -> &str {
        self.split_port().1
    }

    fn split_port(&self) -> (&str, &str) {
        match self.host.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (host, port),
            _ => (&self.host, ""),
        }
    }

    pub fn escaped_path(&self) -> String {
        if !self.raw_path.is_empty() && is_valid_encoded(&self.raw_path, Part::Path) {
            return self.raw_path.clone();
        }
        if self.path == b"*" { "*".to_owned() } else { escape(&self.path, Part::Path) }
    }

    fn escaped_fragment(&self) -> String {
        if !self.raw_fragment.is_empty() && is_valid_encoded(&self.raw_fragment, Part::Fragment) {
            return self.raw_fragment.clone();
        }
        escape(&self.fragment, Part::Fragment)
    }

    /// The parameters of the query, values in order; what cannot be read is left out.
    pub fn query(&self) -> Vec<(String, Vec<String>)> {
        let mut parameters: Vec<(String, Vec<String>)> = Vec::new();
        let mut positions = std::collections::HashMap::new();
        if self.raw_query.matches('&').count() + 1 > MAX_QUERY_PARAMETERS {
            return parameters;
        }
        for part in self.raw_query.split('&') {
            if part.is_empty() || part.contains(';') {
                continue;
            }
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let (Ok(key), Ok(value)) = (unescape(key, Part::Query), unescape(value, Part::Query)) else {
                continue;
            };
            let key = String::from_utf8_lossy(&key).into_owned();
            let value = String::from_utf8_lossy(&value).into_owned();
            let position = *positions.entry(key.clone()).or_insert_with(|| {
                parameters.push((key, Vec::new()));
                parameters.len() - 1
            });
            parameters[position].1.push(value);
        }
        parameters
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        if !self.scheme.is_empty() {
            text.push_str(&self.scheme);
            text.push(':');
        }
        if !self.opaque.is_empty() {
            text.push_str(&self.opaque);
        } else {
            let has_authority = !self.scheme.is_empty() || !self.host.is_empty() || self.user.is_some();
            let omitted = self.omit_host && self.host.is_empty() && self.user.is_none();
            if has_authority && !omitted {
                if !self.host.is_empty() || !self.path.is_empty() || self.user.is_some() {
                    text.push_str("//");
                }
                if let Some(user) = &self.user {
                    text.push_str(user);
                    text.push('@');
                }
                text.push_str(&escape(self.host.as_bytes(), Part::Host));
            }
            let path = self.escaped_path();
            if !path.is_empty() && !path.starts_with('/') && !self.host.is_empty() {
                text.push('/');
            }
            if text.is_empty() && path.split('/').next().is_some_and(|segment| segment.contains(':')) {
                text.push_str("./");
            }
            text.push_str(&path);
        }
        if self.force_query || !self.raw_query.is_empty() {
            text.push('?');
            text.push_str(&self.raw_query);
        }
        if !self.fragment.is_empty() {
            text.push('#');
            text.push_str(&self.escaped_fragment());
        }
        f.write_str(&text)
    }
}

fn describe(url: &str, reason: &str) -> String {
    format!("parse {}: {reason}", quote(url))
}

fn split_scheme(text: &str) -> Result<(&str, &str), String> {
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if index > 0 => {}
            b':' if index == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => return Ok((&text[..index], &text[index + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

fn check_port(port: &str) -> Result<(), String> {
    let valid = match port.strip_prefix(':') {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_digit()),
        None => port.is_empty(),
    };
    if valid { Ok(()) } else { Err(format!("invalid port {} after host", quote(port))) }
}

fn unescape_text(text: &str, part: Part) -> Result<String, String> {
    unescape(text, part).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn parse_host(scheme: &str, host: &str) -> Result<String, String> {
    match host.rfind('[') {
        Some(0) => return parse_bracketed(host),
        Some(_) => return Err("invalid IP-literal".to_owned()),
        None => {}
    }
    if let (Some(first), Some(last)) = (host.find(':'), host.rfind(':')) {
        let web = scheme == "http" || scheme == "https";
        check_port(&host[if web { first } else { last }..])?;
    }
    unescape_text(host, Part::Host)
}

fn parse_bracketed(host: &str) -> Result<String, String> {
    let Some(close) = host.rfind(']') else { return Err("missing ']' in host".to_owned()) };
    let port = &host[close + 1..];
    check_port(port)?;
    let port = unescape_text(port, Part::Host)?;
    let inner = host.get(1..close).unwrap_or("");
    let name = match inner.find("%25") {
        Some(zone) => {
            unescape_text(&inner[..zone], Part::Host)? + &unescape_text(&inner[zone..], Part::Zone)?
        }
        None => unescape_text(inner, Part::Host)?,
    };
    match Address::check_v6_literal(&name) {
        Ok(true) => Ok(format!("[{name}]{port}")),
        Ok(false) => Err("invalid IP-literal".to_owned()),
        Err(reason) => Err(format!("invalid host: {reason}")),
    }
}

fn should_escape(byte: u8, part: Part) -> bool {
    if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
        return false;
    }
    if matches!(part, Part::Host | Part::Zone) {
        return !b"!$&'()*+,;=:[]<>\"".contains(&byte);
    }
    if b"$&+,/:;=?@".contains(&byte) {
        return match part {
            Part::Path => byte == b'?',
            Part::User => b"@/?:".contains(&byte),
            Part::Query => true,
            _ => false,
        };
    }
    !(part == Part::Fragment && b"!()*".contains(&byte))
}

fn is_valid_encoded(text: &str, part: Part) -> bool {
    text.bytes().all(|byte| b"!$&'()*+,;=:@[]%".contains(&byte) || !should_escape(byte, part))
}

fn unescape(text: &str, part: Part) -> Result<Vec<u8>, String> {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while index < bytes.len() {
        let byte = bytes[index];
        if byte != b'%' {
            let in_host = matches!(part, Part::Host | Part::Zone);
            if in_host && byte < 0x80 && should_escape(byte, part) {
                return Err(format!("invalid character {} in host name", quote(&text[index..=index])));
            }
            plain.push(if byte == b'+' && part == Part::Query { b' ' } else { byte });
            index += 1;
            continue;
        }
        let escaped = bytes.get(index + 1..index + 3).and_then(|digits| {
            let digit = |byte: u8| (byte as char).to_digit(16);
            Some((digit(digits[0])? * 16 + digit(digits[1])?) as u8)
        });
        let sequence = &bytes[index..(index + 3).min(bytes.len())];
        let bad = || Err(format!("invalid URL escape {}", quote(&String::from_utf8_lossy(sequence))));
        let Some(value) = escaped else { return bad() };
        let percent = sequence == b"%25";
        match part {
            Part::Host if value < 0x80 && !percent => return bad(),
            Part::Zone if !percent && value != b' ' && should_escape(value, Part::Host) => return bad(),
            _ => {}
        }
        plain.push(value);
        index += 3;
    }
    Ok(plain)
}

fn escape(bytes: &[u8], part: Part) -> String {
    let mut escaped = Vec::with_capacity(bytes.len());
    for byte in bytes {
        if should_escape(*byte, part) {
            escaped.extend_from_slice(format!("%{byte:02X}").as_bytes());
        } else {
            escaped.push(*byte);
        }
    }
    String::from_utf8_lossy(&escaped).into_owned()
}
