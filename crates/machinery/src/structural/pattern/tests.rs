use super::*;

#[test]
fn patterns_match_as_in_go() {
    for (pattern, text, found) in [
        ("^[a-z]+$", "abc", true),
        ("^[a-z]+$", "abc\n", false),
        (r"^\d+$", "٣", false),
        (r"^\w+$", "é", false),
        (r"\bfoo\b", "éfooé", true),
        (r"^[\w.-]+$", "a.b-c_1", true),
        (r"^[a&&b]$", "&", true),
        (r"^[[a]$", "[", true),
        (r"^[]a]$", "]", true),
        (r"^a{,2}$", "a{,2}", true),
        (r"^a{2}$", "aa", true),
        (r"^\Qa.b\E$", "a.b", true),
        (r"^\Qa.b\E$", "axb", false),
        ("(?i)^ABC$", "abc", true),
        ("(?s)^a.b$", "a\nb", true),
        ("^a.b$", "a\nb", false),
        (r"^\x41\x{42}\103$", "ABC", true),
        (r"^\pL\p{Greek}\P{^Nd}$", "éα1", true),
        (r"^[[:alpha:][:^ascii:]]+$", "aé", true),
        (r"^(?P<year>\d{4})-(?<month>\d\d)$", "2024-01", true),
        (r"^\/$", "/", true),
        (r"^\<a\>$", "<a>", true),
        ("a|b|", "c", true),
        (r"^[^\s]$", "\u{b}", true),
        (r"^\S+?@x$", "a@x", true),
        (r"^(?:(a)|b)*$", "abba", true),
        (r"\B", "a", false),
    ] {
        assert_eq!(Pattern::new(pattern.to_owned()).is_found_in(text), Ok(found), "{pattern} {text:?}");
    }
}

#[test]
fn mistakes_read_as_gos() {
    for (pattern, message) in [
        ("a(", "missing closing ): `a(`"),
        ("a)", "unexpected ): `a)`"),
        ("[a", "missing closing ]: `[a`"),
        ("x[b-a]y", "invalid character class range: `b-a`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("a{2}{3}", "invalid nested repetition operator: `{2}{3}`"),
        ("*a", "missing argument to repetition operator: `*`"),
        ("(|+)", "missing argument to repetition operator: `+`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("a{3,2}", "invalid repeat count: `{3,2}`"),
        ("(a{100}){100}", "invalid repeat count: `{100}`"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        ("(?!a)", "invalid or unsupported Perl syntax: `(?!`"),
        ("(?<=a)", "invalid named capture: `(?<=a)`"),
        ("(?P<a b>x)", "invalid named capture: `(?P<a b>`"),
        (r"\y", r"invalid escape sequence: `\y`"),
        (r"\1", r"invalid escape sequence: `\1`"),
        (r"a\", "trailing backslash at end of expression: ``"),
        (r"\p{Nonsense}", r"invalid character class range: `\p{Nonsense}`"),
        (r"[[:nonsense:]]", "invalid character class range: `[:nonsense:]`"),
    ] {
        let pattern = Pattern::new(pattern.to_owned());
        assert_eq!(pattern.error(), Some(format!("error parsing regexp: {message}").as_str()));
    }
}
