//! What names, label keys and values, and other short texts may look like, with upstream's explanations.
//!
//! Every `is_…` function returns the reasons why a value is not what its name says; no reasons means it is.

/// Says what is wrong with a name. With `prefix`, the name is a `generateName` that will have text appended.
pub type NameRule = fn(name: &str, prefix: bool) -> Vec<String>;

pub const LABEL_MAX: usize = 63;
pub const SUBDOMAIN_MAX: usize = 253;

const GENERATED_SUFFIX: usize = 5;
const GENERATED_BASE_MAX: usize = LABEL_MAX - GENERATED_SUFFIX;
/// No vowels and no look-alikes, so that no words appear by chance.
const SUFFIX_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// One shape of text: how it is matched and how a mismatch is explained.
struct Shape {
    matches: fn(&str) -> bool,
    explanation: &'static str,
    examples: &'static [&'static str],
    pattern: &'static str,
}

impl Shape {
    fn mismatch(&self) -> String {
        let Shape { explanation, examples, pattern, .. } = self;
        if examples.is_empty() {
            return format!("{explanation} (regex used for validation is '{pattern}')");
        }
        let examples =
            examples.iter().map(|example| format!("'{example}', ")).collect::<Vec<_>>().join(" or ");
        format!("{explanation} (e.g. {examples}regex used for validation is '{pattern}')")
    }

    fn check(&self, value: &str) -> Option<String> {
        (!(self.matches)(value)).then(|| self.mismatch())
    }
}

macro_rules! label_1123 {
    () => {
        "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
    };
}
macro_rules! subdomain_1123 {
    () => {
        concat!(label_1123!(), r"(\.", label_1123!(), ")*")
    };
}
macro_rules! underscore_label {
    () => {
        "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
    };
}
macro_rules! label_key {
    () => {
        "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
    };
}

const DNS1123_LABEL: Shape = Shape {
    matches: matches_dns1123_label,
    explanation: "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
    examples: &["my-name", "123-abc"],
    pattern: label_1123!(),
};
const DNS1123_SUBDOMAIN: Shape = Shape {
    matches: matches_dns1123_subdomain,
    explanation: "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
    examples: &["example.com"],
    pattern: subdomain_1123!(),
};
const CASELESS_SUBDOMAIN: Shape = Shape {
    matches: |value| matches_dns1123_subdomain(&value.to_ascii_lowercase()),
    explanation: "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
    examples: &["Example.com"],
    pattern: subdomain_1123!(),
};
const UNDERSCORE_SUBDOMAIN: Shape = Shape {
    matches: |value| value.split('.').all(matches_underscore_label),
    explanation: "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character",
    examples: &["example.com"],
    pattern: concat!(underscore_label!(), r"(\.", underscore_label!(), ")*"),
};
const WILDCARD_SUBDOMAIN: Shape = Shape {
    matches: |value| value.strip_prefix("*.").is_some_and(matches_dns1123_subdomain),
    explanation: "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
    examples: &["*.example.com"],
    pattern: concat!(r"\*\.", subdomain_1123!()),
};
const DNS1035_LABEL: Shape = Shape {
    matches: |value| value.starts_with(|c: char| c.is_ascii_lowercase()) && matches_dns1123_label(value),
    explanation: "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
    examples: &["my-name", "abc-123"],
    pattern: "[a-z]([-a-z0-9]*[a-z0-9])?",
};
const LABEL_KEY_NAME: Shape = Shape {
    matches: matches_label_key_name,
    explanation: "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
    examples: &["MyName", "my.name", "123-abc"],
    pattern: label_key!(),
};
const LABEL_VALUE: Shape = Shape {
    matches: |value| value.is_empty() || matches_label_key_name(value),
    explanation: "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
    examples: &["MyValue", "my_value", "12345"],
    pattern: concat!("(", label_key!(), ")?"),
};
const C_IDENTIFIER: Shape = Shape {
    matches: |value| {
        value.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && value.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    },
    explanation: "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_'",
    examples: &["my_name", "MY_NAME", "MyName"],
    pattern: "[A-Za-z_][A-Za-z0-9_]*",
};
const ENV_VAR_NAME: Shape = Shape {
    matches: |value| {
        !value.starts_with(|c: char| c.is_ascii_digit())
            && !value.is_empty()
            && value.bytes().all(is_key_byte)
    },
    explanation: "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', and must not start with a digit",
    examples: &["my.env-name", "MY_ENV.NAME", "MyEnvName1"],
    pattern: "[-._a-zA-Z][-._a-zA-Z0-9]*",
};
const CONFIG_MAP_KEY: Shape = Shape {
    matches: |value| !value.is_empty() && value.bytes().all(is_key_byte),
    explanation: "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
    examples: &["key.name", "KEY_NAME", "key-name"],
    pattern: "[-._a-zA-Z0-9]+",
};
const HTTP_HEADER_NAME: Shape = Shape {
    matches: |value| !value.is_empty() && value.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'),
    explanation: "a valid HTTP header must consist of alphanumeric characters or '-'",
    examples: &["X-Header-Name"],
    pattern: "[-A-Za-z0-9]+",
};
const PERCENT: Shape = Shape {
    matches: |value| {
        value
            .strip_suffix('%')
            .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
    },
    explanation: "a valid percent string must be a numeric string followed by an ending '%'",
    examples: &["1%", "93%"],
    pattern: "[0-9]+%",
};

const CONDITION_REASON: Shape = Shape {
    matches: |value| {
        let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b',' | b':');
        value.starts_with(|c: char| c.is_ascii_alphabetic())
            && value.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
            && value.bytes().all(inner)
    },
    explanation: "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'",
    examples: &["my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB"],
    pattern: "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?",
};

fn is_key_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

fn is_lower_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// Non-empty, `edge` at both ends, `inner` everywhere.
fn bounded(value: &str, edge: fn(u8) -> bool, inner: impl Fn(u8) -> bool) -> bool {
    let bytes = value.as_bytes();
    matches!((bytes.first(), bytes.last()), (Some(first), Some(last)) if edge(*first) && edge(*last))
        && bytes.iter().all(|byte| inner(*byte))
}

fn matches_dns1123_label(value: &str) -> bool {
    bounded(value, is_lower_alphanumeric, |byte| is_lower_alphanumeric(byte) || byte == b'-')
}

fn matches_dns1123_subdomain(value: &str) -> bool {
    value.split('.').all(matches_dns1123_label)
}

fn matches_underscore_label(value: &str) -> bool {
    let value = value.strip_prefix('_').unwrap_or(value);
    bounded(value, is_lower_alphanumeric, |byte| is_lower_alphanumeric(byte) || matches!(byte, b'-' | b'_'))
}

fn matches_label_key_name(value: &str) -> bool {
    bounded(value, |byte| byte.is_ascii_alphanumeric(), is_key_byte)
}

fn length(value: &str, max: usize) -> Option<String> {
    (value.len() > max).then(|| format!("must be no more than {max} characters"))
}

/// As [`length`]; upstream's newer rules say what they count.
fn length_in_bytes(value: &str, max: usize) -> Option<String> {
    (value.len() > max).then(|| format!("must be no more than {max} bytes"))
}

fn chdir_prefix(value: &str) -> Option<String> {
    let reason = match value {
        "." => "must not be '.'",
        ".." => "must not be '..'",
        _ if value.starts_with("..") => "must not start with '..'",
        _ => return None,
    };
    Some(reason.to_owned())
}

fn reasons(reasons: impl IntoIterator<Item = Option<String>>) -> Vec<String> {
    reasons.into_iter().flatten().collect()
}

/// A label of DNS as RFC 1123 has it, in lower case.
pub fn is_dns1123_label(value: &str) -> Vec<String> {
    let shape = DNS1123_LABEL.check(value).map(|mismatch| {
        // A good subdomain that is no label has dots.
        if matches_dns1123_subdomain(value) { "must not contain dots".to_owned() } else { mismatch }
    });
    reasons([length(value, LABEL_MAX), shape])
}

/// One or more labels joined by dots.
pub fn is_dns1123_subdomain(value: &str) -> Vec<String> {
    reasons([length(value, SUBDOMAIN_MAX), DNS1123_SUBDOMAIN.check(value)])
}

/// As [`is_dns1123_subdomain`], upper case allowed.
pub fn is_dns1123_subdomain_caseless(value: &str) -> Vec<String> {
    reasons([length_in_bytes(value, SUBDOMAIN_MAX), CASELESS_SUBDOMAIN.check(value)])
}

/// As [`is_dns1123_subdomain`], underscores allowed.
pub fn is_dns1123_subdomain_with_underscore(value: &str) -> Vec<String> {
    reasons([length(value, SUBDOMAIN_MAX), UNDERSCORE_SUBDOMAIN.check(value)])
}

/// `*.` and a subdomain.
pub fn is_wildcard_dns1123_subdomain(value: &str) -> Vec<String> {
    reasons([length(value, SUBDOMAIN_MAX), WILDCARD_SUBDOMAIN.check(value)])
}

/// A DNS label that starts with a letter.
pub fn is_dns1035_label(value: &str) -> Vec<String> {
    reasons([length(value, LABEL_MAX), DNS1035_LABEL.check(value)])
}

/// A label key, annotation key or finalizer: `[subdomain/]name`.
pub fn is_qualified_name(value: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut parts = value.split('/');
    let name = match (parts.next(), parts.next(), parts.next()) {
        (Some(name), None, _) => name,
        (Some(prefix), Some(name), None) => {
            if prefix.is_empty() {
                found.push("prefix part must be non-empty".to_owned());
            } else {
                let reasons = [length_in_bytes(prefix, SUBDOMAIN_MAX), DNS1123_SUBDOMAIN.check(prefix)];
                found.extend(reasons.iter().flatten().map(|reason| format!("prefix part {reason}")));
            }
            name
        }
        _ => {
            let mismatch = LABEL_KEY_NAME.mismatch();
            return vec![format!(
                "a valid label key {mismatch} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        found.push("name part must be non-empty".to_owned());
    }
    let reasons = [length_in_bytes(name, LABEL_MAX), LABEL_KEY_NAME.check(name)];
    found.extend(reasons.iter().flatten().map(|reason| format!("name part {reason}")));
    found
}

pub fn is_label_value(value: &str) -> Vec<String> {
    reasons([length_in_bytes(value, LABEL_MAX), LABEL_VALUE.check(value)])
}

/// What can stand between two slashes of a URL. RBAC objects have such names.
pub fn is_path_segment_name(value: &str) -> Vec<String> {
    match value {
        "." | ".." => vec![format!("may not be '{value}'")],
        _ => is_path_segment_prefix(value),
    }
}

/// The start of a path segment name.
pub fn is_path_segment_prefix(value: &str) -> Vec<String> {
    ["/", "%"]
        .into_iter()
        .filter(|bad| value.contains(bad))
        .map(|bad| format!("may not contain '{bad}'"))
        .collect()
}

pub fn is_c_identifier(value: &str) -> Vec<String> {
    reasons([C_IDENTIFIER.check(value)])
}

pub fn is_env_var_name(value: &str) -> Vec<String> {
    reasons([ENV_VAR_NAME.check(value), chdir_prefix(value)])
}

/// What container environment variables may be called since the rule was relaxed.
pub fn is_relaxed_env_var_name(value: &str) -> Vec<String> {
    let empty = value.is_empty().then(|| "environment variable name must be non-empty".to_owned());
    let odd = value.bytes().any(|byte| !(b' '..=b'~').contains(&byte) || byte == b'=').then(|| {
        "a valid environment variable name must consist only of printable ASCII characters other than '='"
            .to_owned()
    });
    reasons([empty, odd])
}

/// A key of a ConfigMap or Secret.
pub fn is_config_map_key(value: &str) -> Vec<String> {
    reasons([length(value, SUBDOMAIN_MAX), CONFIG_MAP_KEY.check(value), chdir_prefix(value)])
}

pub fn is_http_header_name(value: &str) -> Vec<String> {
    reasons([HTTP_HEADER_NAME.check(value)])
}

/// The reason of a condition of the newer form; its length is checked elsewhere.
pub fn is_condition_reason(value: &str) -> Vec<String> {
    reasons([CONDITION_REASON.check(value)])
}

pub fn is_percent(value: &str) -> Vec<String> {
    reasons([PERCENT.check(value)])
}

pub fn is_port_number(value: i64) -> Vec<String> {
    is_in_range(value, 1, 65535)
}

pub fn is_in_range(value: i64, min: i64, max: i64) -> Vec<String> {
    if (min..=max).contains(&value) {
        return Vec::new();
    }
    vec![format!("must be between {min} and {max}, inclusive")]
}

/// A service name of RFC 6335, in lower case.
pub fn is_port_name(value: &str) -> Vec<String> {
    let charset = !value.is_empty() && value.bytes().all(|byte| is_lower_alphanumeric(byte) || byte == b'-');
    let letter = value.bytes().any(|byte| byte.is_ascii_lowercase());
    let rules = [
        (!charset, "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"),
        (!letter, "must contain at least one letter (a-z)"),
        (value.contains("--"), "must not contain consecutive hyphens"),
        (value.starts_with('-') || value.ends_with('-'), "must not begin or end with a hyphen"),
    ];
    let broken = rules.into_iter().map(|(broken, reason)| broken.then(|| reason.to_owned()));
    reasons(std::iter::once(length(value, 15)).chain(broken))
}

/// The rule for most kinds.
pub fn subdomain_name(name: &str, prefix: bool) -> Vec<String> {
    is_dns1123_subdomain(&masked(name, prefix))
}

/// As [`subdomain_name`] in the words of upstream's newer checks, which look at what is generated instead of the
/// prefix.
pub fn long_name(name: &str, prefix: bool) -> Vec<String> {
    match prefix {
        true => is_path_segment_prefix(name),
        false => reasons([length_in_bytes(name, SUBDOMAIN_MAX), DNS1123_SUBDOMAIN.check(name)]),
    }
}

/// The rule for namespaces.
pub fn label_name(name: &str, prefix: bool) -> Vec<String> {
    is_dns1123_label(&masked(name, prefix))
}

/// The rule for services before they allowed a leading digit.
pub fn dns1035_name(name: &str, prefix: bool) -> Vec<String> {
    is_dns1035_label(&masked(name, prefix))
}

/// The rule for RBAC kinds, and the least that every name keeps.
pub fn path_segment_name(name: &str, prefix: bool) -> Vec<String> {
    if prefix { is_path_segment_prefix(name) } else { is_path_segment_name(name) }
}

/// A `generateName` may end in a dash because text follows. Upstream replaces its last two characters by `a`.
fn masked(name: &str, prefix: bool) -> String {
    let keep = name.len().saturating_sub(2);
    if prefix && name.len() > 1 && name.ends_with('-') && name.is_char_boundary(keep) {
        return format!("{}a", &name[..keep]);
    }
    name.to_owned()
}

/// A name for an object that only has a `generateName`.
pub fn generate_name(base: &str, random: [u8; 8]) -> String {
    let base = &base[..base.floor_char_boundary(GENERATED_BASE_MAX)];
    let mut name = String::with_capacity(base.len() + GENERATED_SUFFIX);
    name.push_str(base);
    let mut rest = u64::from_le_bytes(random);
    for _ in 0..GENERATED_SUFFIX {
        name.push(SUFFIX_ALPHABET[(rest % SUFFIX_ALPHABET.len() as u64) as usize] as char);
        rest /= SUFFIX_ALPHABET.len() as u64;
    }
    name
}

/// A UUID of version 4 as text.
pub fn uuid_v4(mut random: [u8; 16]) -> String {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    random[6] = (random[6] & 0x0f) | 0x40;
    random[8] = (random[8] & 0x3f) | 0x80;
    let mut text = String::with_capacity(36);
    for (at, byte) in random.into_iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push(HEX[usize::from(byte >> 4)] as char);
        text.push(HEX[usize::from(byte & 15)] as char);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rule, what it accepts, what it rejects.
    type Row = (fn(&str) -> Vec<String>, &'static [&'static str], &'static [&'static str]);

    const LONG: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

    #[test]
    fn each_rule_knows_its_texts() {
        let rows: &[Row] = &[
            (is_dns1123_label, &["a", "1-a", LONG], &["", "A", "-a", "a-", "a.b", "a_b", "é", "a\n"]),
            (is_dns1123_subdomain, &["a", "a.1", "a-b.c"], &["", ".", "a.", ".a", "a..b", "a.B", "a/b"]),
            (is_dns1123_subdomain_caseless, &["a.B"], &["a_b", "-A"]),
            (is_dns1123_subdomain_with_underscore, &["_a.b_c"], &["__a", "a_", "_"]),
            (is_wildcard_dns1123_subdomain, &["*.a.b"], &["*", "*.", "a.b", "*.*.a"]),
            (is_dns1035_label, &["a", "a-1"], &["1a", "a.b", ""]),
            (is_qualified_name, &["a", "A_b.c", "a.b/C"], &["", "/a", "a/", "a/b/c", "A/b", "-a"]),
            (is_label_value, &["", "a", "A_b.c"], &["-", "a-", "a/b", " "]),
            (is_path_segment_name, &["a", "system:x", "A b", "..."], &[".", "..", "a/b", "a%b"]),
            (is_c_identifier, &["a", "_1"], &["", "1a", "a-b"]),
            (is_env_var_name, &["a.b-c", "_x"], &["", "1a", "a=b", "..", "..a"]),
            (is_relaxed_env_var_name, &["1a", "a b", ".."], &["", "a=b", "é"]),
            (is_config_map_key, &["a", "1.b_C-"], &["", ".", "..", "...", "..a", "a/b"]),
            (is_http_header_name, &["X-A"], &["", "X A"]),
            (is_percent, &["1%", "100%"], &["%", "1", "-1%"]),
            (is_port_name, &["http", "a-1"], &["", "80", "a--b", "-a", "A", "aaaaaaaaaaaaaaaa"]),
        ];
        for (rule, accepted, rejected) in rows {
            for value in *accepted {
                assert_eq!(rule(value), Vec::<String>::new(), "{value:?}");
            }
            for value in *rejected {
                assert!(!rule(value).is_empty(), "{value:?}");
            }
        }
    }

    #[test]
    fn explanations_are_upstreams() {
        for (reasons, wanted) in [
            (
                is_dns1123_label("A"),
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
            ),
            (is_dns1123_label("a.b"), "must not contain dots"),
            (
                is_dns1123_subdomain("A"),
                r"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            ),
            (
                is_qualified_name("a/-"),
                "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
            ),
            (is_path_segment_name(".."), "may not be '..'"),
            (is_label_value(&"a".repeat(64)), "must be no more than 63 bytes"),
        ] {
            assert_eq!(reasons, [wanted]);
        }
        assert_eq!(is_qualified_name("/").len(), 3, "empty prefix, empty name, and its shape");
        assert_eq!(is_dns1123_label(&"A".repeat(64)).len(), 2, "length and shape");
    }

    #[test]
    fn a_generate_name_may_end_in_a_dash() {
        assert!(subdomain_name("web-", true).is_empty());
        assert!(!subdomain_name("web-", false).is_empty());
        assert!(!subdomain_name("-", true).is_empty());
        assert!(!subdomain_name("é-", true).is_empty());
        assert!(path_segment_name("..", true).is_empty(), "text will follow");
    }

    #[test]
    fn generated_names_fit_a_label() {
        assert_eq!(generate_name("web-", [0; 8]), "web-bbbbb");
        assert_eq!(generate_name("web-", [1, 0, 0, 0, 0, 0, 0, 0]), "web-cbbbb");
        assert_eq!(generate_name(&"a".repeat(70), [0xff; 8]).len(), LABEL_MAX);
        assert!(generate_name(&"é".repeat(70), [0; 8]).len() <= LABEL_MAX);
    }

    #[test]
    fn uuids_carry_version_and_variant() {
        assert_eq!(uuid_v4([0; 16]), "00000000-0000-4000-8000-000000000000");
        assert_eq!(uuid_v4([0xff; 16]), "ffffffff-ffff-4fff-bfff-ffffffffffff");
    }
}
