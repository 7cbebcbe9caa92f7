//! Mail addresses as Go's `net/mail` reads them: RFC 5322, with display names, comments and groups.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Whether a text is one address.
pub fn is_address(text: &str) -> bool {
    let mut parser = Parser { rest: text };
    let found = parser.address(true);
    found == Some(1) && parser.skip_comments().is_some() && parser.rest.is_empty()
}

/// Every step is `None` where the text is no address.
struct Parser<'t> {
    rest: &'t str,
}

impl Parser<'_> {
    /// How many addresses: a group has any number.
    fn address(&mut self, groups: bool) -> Option<usize> {
        self.skip_space();
        if self.rest.is_empty() {
            return None;
        }
        let start = self.rest;
        if self.spec().is_some() {
            self.skip_space();
            if self.take('(') {
                self.comment()?;
            }
            return Some(1);
        }
        self.rest = start;
        if !self.rest.starts_with('<') {
            self.phrase()?;
        }
        self.skip_space();
        if groups && self.take(':') {
            return self.group();
        }
        if !self.take('<') {
            return None;
        }
        self.spec()?;
        self.take('>').then_some(1)
    }

    fn group(&mut self) -> Option<usize> {
        self.skip_space();
        if self.take(';') {
            self.skip_comments()?;
            return Some(0);
        }
        let mut count = 0;
        loop {
            self.skip_space();
            count += self.address(false)?;
            self.skip_comments()?;
            if self.take(';') {
                self.skip_comments()?;
                return Some(count);
            }
            if !self.take(',') {
                return None;
            }
        }
    }

    /// `local@domain`
    fn spec(&mut self) -> Option<()> {
        self.skip_space();
        if self.rest.starts_with('"') {
            if self.quoted()? == 0 {
                return None;
            }
        } else {
            self.atom(false)?;
        }
        if !self.take('@') {
            return None;
        }
        self.skip_space();
        if self.take('[') { self.literal() } else { self.atom(false) }
    }

    fn literal(&mut self) -> Option<()> {
        let (address, after) = self.rest.split_once(']')?;
        let is_ip = address.parse::<Ipv4Addr>().is_ok() || address.parse::<Ipv6Addr>().is_ok();
        self.rest = after;
        is_ip.then_some(())
    }

    fn phrase(&mut self) -> Option<()> {
        let mut words = 0;
        loop {
            if words > 0 {
                self.skip_comments()?;
            }
            self.skip_space();
            if self.rest.is_empty() {
                break;
            }
            let word = if self.rest.starts_with('"') { self.quoted().map(drop) } else { self.atom(true) };
            if word.is_none() {
                break;
            }
            words += 1;
        }
        (words > 0).then_some(())
    }

    /// The number of characters between the quotes.
    fn quoted(&mut self) -> Option<usize> {
        let mut escaped = false;
        let mut count = 0;
        for (at, c) in self.rest.char_indices().skip(1) {
            match c {
                c if escaped => {
                    if !is_visible(c) && !is_space(c) {
                        return None;
                    }
                    count += 1;
                    escaped = false;
                }
                '"' => {
                    self.rest = &self.rest[at + 1..];
                    return Some(count);
                }
                '\\' => escaped = true,
                c if is_visible(c) || is_space(c) => count += 1,
                _ => return None,
            }
        }
        None
    }

    /// Words joined by dots; a display name may have dots anywhere.
    fn atom(&mut self, any_dots: bool) -> Option<()> {
        let is_atom = |c: char| is_visible(c) && !"()<>[]:;@\\,\"".contains(c);
        let len = self.rest.find(|c| !is_atom(c)).unwrap_or(self.rest.len());
        let (atom, after) = self.rest.split_at(len);
        if atom.is_empty() {
            return None;
        }
        self.rest = after;
        let odd = atom.starts_with('.') || atom.ends_with('.') || atom.contains("..");
        (any_dots || !odd).then_some(())
    }

    fn skip_comments(&mut self) -> Option<()> {
        self.skip_space();
        while self.take('(') {
            self.comment()?;
            self.skip_space();
        }
        Some(())
    }

    /// Up to the parenthesis that closes; the opening one is read.
    fn comment(&mut self) -> Option<()> {
        let mut depth = 1;
        let mut chars = self.rest.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => drop(chars.next()),
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                self.rest = &self.rest[at + 1..];
                return Some(());
            }
        }
        None
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
    }

    fn take(&mut self, c: char) -> bool {
        match self.rest.strip_prefix(c) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }
}

fn is_visible(c: char) -> bool {
    matches!(c, '!'..='~') || !c.is_ascii()
}

fn is_space(c: char) -> bool {
    c == ' ' || c == '\t'
}
