//! `metadata.name=a,status.phase!=Running`

use std::fmt;

use compact_str::CompactString;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldOperator {
    Equals,
    NotEquals,
}

/// One comparison of a field with a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldTerm {
    pub field: CompactString,
    pub operator: FieldOperator,
    pub value: CompactString,
}

/// All terms must hold. No terms: everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    terms: Vec<FieldTerm>,
}

impl FieldSelector {
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = split_terms(text);
        parts.sort_unstable();
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        let mut terms = parts.map(|part| parse_term(text, part)).collect::<Result<Vec<_>, _>>()?;
        // Upstream drops a comparison of nothing with nothing.
        terms.retain(|term| !term.field.is_empty() || !term.value.is_empty());
        Ok(Self { terms })
    }

    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    pub fn terms(&self) -> &[FieldTerm] {
        &self.terms
    }

    /// `value_of` gives a field's text; a field that an object lacks is the empty text.
    pub fn matches<'a>(&self, value_of: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.terms.iter().all(|term| {
            let equal = value_of(&term.field).unwrap_or_default() == term.value;
            equal == (term.operator == FieldOperator::Equals)
        })
    }

    /// The one value that `field` must have, if the selector says so.
    pub fn exact(&self, field: &str) -> Option<&str> {
        let mut terms = self.terms.iter();
        terms
            .find(|term| term.field == field && term.operator == FieldOperator::Equals)
            .map(|term| term.value.as_str())
    }

    /// The one name that an object must have.
    pub fn exact_name(&self) -> Option<&str> {
        self.exact("metadata.name")
    }

    /// The one namespace that an object must be in.
    pub fn exact_namespace(&self) -> Option<&str> {
        self.exact("metadata.namespace")
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, term) in self.terms.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let operator = match term.operator {
                FieldOperator::Equals => "=",
                FieldOperator::NotEquals => "!=",
            };
            write!(f, "{comma}{}{operator}", term.field)?;
            for c in term.value.chars() {
                if matches!(c, '\\' | ',' | '=') {
                    f.write_str("\\")?;
                }
                write!(f, "{c}")?;
            }
        }
        Ok(())
    }
}

/// Splits at commas that no backslash precedes.
fn split_terms(text: &str) -> Vec<&str> {
    let mut escaped = false;
    text.split(|c: char| {
        let separates = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        separates
    })
    .collect()
}

fn parse_term(selector: &str, part: &str) -> Result<FieldTerm, String> {
    let misunderstood = || format!("invalid selector: '{selector}'; can't understand '{part}'");
    // The first operator splits; `!` alone belongs to the field.
    let equals = part.find('=').ok_or_else(misunderstood)?;
    let (field, rest) = (&part[..equals], &part[equals + 1..]);
    let (field, operator, value) = match (field.strip_suffix('!'), rest.strip_prefix('=')) {
        (Some(field), _) => (field, FieldOperator::NotEquals, rest),
        (None, Some(value)) => (field, FieldOperator::Equals, value),
        (None, None) => (field, FieldOperator::Equals, rest),
    };
    Ok(FieldTerm { field: field.into(), operator, value: unescape(value)? })
}

fn unescape(value: &str) -> Result<CompactString, String> {
    let mut out = CompactString::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                Some(c) => return Err(format!("invalid field selector: invalid escape sequence: \\{c}")),
                None => return Err("invalid field selector: invalid escape sequence: \\".to_owned()),
            },
            // Upstream prints the character's number.
            ',' | '=' => {
                return Err(format!("invalid field selector: unescaped character in value: {}", c as u32));
            }
            c => out.push(c),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(selector: &str) -> bool {
        FieldSelector::parse(selector).unwrap().matches(|field| match field {
            "metadata.name" => Some("a"),
            "odd" => Some(r"x=1,y\"),
            _ => None,
        })
    }

    #[test]
    fn terms_compare_texts() {
        for selector in
            ["", ",", "metadata.name=a", "metadata.name==a", "metadata.name!=b", "absent=", "absent!=x"]
        {
            assert!(matches(selector), "{selector}");
        }
        for selector in ["metadata.name=b", "metadata.name!=a", "metadata.name=a,absent=x"] {
            assert!(!matches(selector), "{selector}");
        }
    }

    #[test]
    fn values_escape_what_separates() {
        let text = r"odd=x\=1\,y\\";
        assert!(matches(text));
        assert_eq!(FieldSelector::parse(text).unwrap().to_string(), text);
        assert_eq!(FieldSelector::parse("b==1,a!=2,").unwrap().to_string(), "a!=2,b=1");
    }

    #[test]
    fn exact_values_are_found() {
        let selector = FieldSelector::parse("metadata.name=a,metadata.namespace!=b").unwrap();
        assert_eq!((selector.exact_name(), selector.exact_namespace()), (Some("a"), None));
        assert!(FieldSelector::default().is_empty());
    }

    #[test]
    fn mistakes_are_explained() {
        for (text, message) in [
            ("a", "invalid selector: 'a'; can't understand 'a'"),
            ("b=1,a", "invalid selector: 'b=1,a'; can't understand 'a'"),
            ("a=b=c", "invalid field selector: unescaped character in value: 61"),
            (r"a=\b", r"invalid field selector: invalid escape sequence: \b"),
            (r"a=b\", r"invalid field selector: invalid escape sequence: \"),
        ] {
            assert_eq!(FieldSelector::parse(text), Err(message.to_owned()));
        }
    }
}
