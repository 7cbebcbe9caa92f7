//! Names of fields as CEL can write them: `__namespace__` for a reserved word, `a__dash__b` for `a-b`.

const RESERVED: &[&str] = &[
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Whether the word cannot name a variable.
pub fn is_reserved(word: &str) -> bool {
    RESERVED.contains(&word)
}

/// The identifier of a field; `None` where CEL has none, so that the field cannot be used in expressions.
pub fn escape(name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let mut escaped = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(character) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("__") {
            escaped.push_str("__underscores__");
            rest = after;
            continue;
        }
        match character {
            '.' => escaped.push_str("__dot__"),
            '-' => escaped.push_str("__dash__"),
            '/' => escaped.push_str("__slash__"),
            '_' => escaped.push('_'),
            other if other.is_ascii_alphanumeric() => escaped.push(other),
            _ => return None,
        }
        rest = &rest[character.len_utf8()..];
    }
    Some(escaped)
}

/// The field an identifier stands for; `None` where it is the escape of nothing.
pub fn unescape(identifier: &str) -> Option<String> {
    let mut name = String::with_capacity(identifier.len());
    let mut rest = identifier;
    while !rest.is_empty() {
        let Some(word) = escaped_word(rest) else {
            let character = rest.chars().next()?;
            name.push(character);
            rest = &rest[character.len_utf8()..];
            continue;
        };
        match word {
            "underscores" => name.push_str("__"),
            "dot" => name.push('.'),
            "dash" => name.push('-'),
            "slash" => name.push('/'),
            _ if RESERVED.contains(&word) && word.len() + 4 == identifier.len() => name.push_str(word),
            _ => return None,
        }
        rest = &rest[word.len() + 4..];
    }
    Some(name)
}

/// `word` of a text that begins `__word__`.
fn escaped_word(text: &str) -> Option<&str> {
    let after = text.strip_prefix("__")?;
    let word = &after[..after.find('_')?];
    (!word.is_empty() && after[word.len()..].starts_with("__")).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_and_found_again() {
        for (name, escaped) in [
            ("replicas", "replicas"),
            ("namespace", "__namespace__"),
            ("a-b", "a__dash__b"),
            ("a.b/c", "a__dot__b__slash__c"),
            ("__x__", "__underscores__x__underscores__"),
            ("___", "__underscores___"),
            ("a_b", "a_b"),
        ] {
            assert_eq!(escape(name).as_deref(), Some(escaped), "{name}");
            assert_eq!(unescape(escaped).as_deref(), Some(name), "{escaped}");
        }
    }

    #[test]
    fn what_cel_cannot_name_has_no_escape() {
        for name in ["", "1a", "a b", "é", "a$"] {
            assert_eq!(escape(name), None, "{name}");
        }
        for identifier in ["__nothing__", "a__namespace__"] {
            assert_eq!(unescape(identifier), None, "{identifier}");
        }
    }
}
