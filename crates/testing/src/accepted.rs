//! Differences that are meant, one to a line: `row | place | why`.
//!
//! The row is `file/title`; the place is `code KUBE HANSE`, `header NAME` or a path in the body, which covers what
//! is below it. `*` stands for any text.

use std::{cell::Cell, path::Path};

use anyhow::{Result, bail};

pub struct Accepted(Vec<Rule>);

struct Rule {
    row: String,
    place: String,
    why: String,
    line: usize,
    used: Cell<bool>,
}

impl Accepted {
    pub fn read(path: &Path) -> Result<Accepted> {
        let mut rules = Vec::new();
        for (number, line) in std::fs::read_to_string(path)?.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let parts: Vec<&str> = line.splitn(3, " | ").map(str::trim).collect();
            let [row, place, why] = parts[..] else {
                bail!("{}:{}: not of the form `row | place | why`", path.display(), number + 1);
            };
            if why.len() < 10 {
                bail!("{}:{}: an accepted difference needs its reason", path.display(), number + 1);
            }
            rules.push(Rule {
                row: row.into(),
                place: place.into(),
                why: why.into(),
                line: number + 1,
                used: Cell::new(false),
            });
        }
        Ok(Accepted(rules))
    }

    /// Why the difference is meant, if it is.
    pub fn reason(&self, row: &str, place: &str) -> Option<&str> {
        let rule = self.0.iter().find(|rule| glob(&rule.row, row) && covers(&rule.place, place))?;
        rule.used.set(true);
        Some(&rule.why)
    }

    /// Lines that no difference needed.
    pub fn unused(&self) -> impl Iterator<Item = String> {
        let unused = self.0.iter().filter(|rule| !rule.used.get());
        unused.map(|rule| format!("accepted.txt:{}: {} | {}", rule.line, rule.row, rule.place))
    }
}

/// True for the place itself and what is below it.
fn covers(pattern: &str, place: &str) -> bool {
    let ends = place.match_indices(['.', '[']).map(|(at, _)| at).chain([place.len()]);
    ends.into_iter().any(|end| glob(pattern, &place[..end]))
}

fn glob(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => {
            let Some(text) = text.strip_prefix(start) else { return false };
            let mut ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
            ends.any(|end| glob(rest, &text[end..]))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_covers_its_place_and_what_is_below() {
        assert!(covers(".details", ".details.kind"));
        assert!(covers(".items[*].name", ".items[3].name"));
        assert!(covers("[4]", "[4].object.metadata"));
        assert!(!covers(".details", ".detailsOfSomething"));
        assert!(!covers(".details.kind", ".details"));
        assert!(!covers("code 500 400", "code 500 422"));
    }
}
