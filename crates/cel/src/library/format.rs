//! Named formats: `format.dns1123Label().validate(name)`.

use super::strings::text;
use crate::{
    error::{Eval, EvalError},
    functions::{Body, Context, Functions},
    time::Time,
    url::Url,
    value::{Opaque, Value},
};

/// A format and what judging by it costs.
#[derive(Debug)]
pub struct NamedFormat {
    /// As expressions name it.
    pub name: &'static str,
    /// As Kubernetes calls it.
    pub title: &'static str,
    /// The length of the regular expression that the cost pretends is used.
    pub regex_size: u64,
}

const FORMATS: &[NamedFormat] = &[
    NamedFormat { name: "dns1123Label", title: "DNS1123Label", regex_size: 30 },
    NamedFormat { name: "dns1123Subdomain", title: "DNS1123Subdomain", regex_size: 60 },
    NamedFormat { name: "dns1035Label", title: "DNS1035Label", regex_size: 30 },
    NamedFormat { name: "qualifiedName", title: "QualifiedName", regex_size: 60 },
    NamedFormat { name: "dns1123LabelPrefix", title: "DNS1123LabelPrefix", regex_size: 30 },
    NamedFormat { name: "dns1123SubdomainPrefix", title: "DNS1123SubdomainPrefix", regex_size: 60 },
    NamedFormat { name: "dns1035LabelPrefix", title: "DNS1035LabelPrefix", regex_size: 30 },
    NamedFormat { name: "labelValue", title: "LabelValue", regex_size: 40 },
    NamedFormat { name: "uri", title: "URI", regex_size: 1103 },
    NamedFormat { name: "uuid", title: "uuid", regex_size: 70 },
    NamedFormat { name: "byte", title: "byte", regex_size: 84 },
    NamedFormat { name: "date", title: "date", regex_size: 71 },
    NamedFormat { name: "datetime", title: "datetime", regex_size: 71 },
];

pub fn add(functions: &mut Functions) {
    functions.add(&[
        ("validate", "format-validate", "kubernetes.NamedFormat.(string) optional(list(string))", validate),
        ("format.named", "format-named", "(string) optional(kubernetes.NamedFormat)", |_, args| {
            let name = text(args, 0)?;
            let found = FORMATS.iter().find(|format| format.name == name);
            Ok(Value::optional(found.map(|format| Value::Opaque(Opaque::Format(format)))))
        }),
    ]);
    const CONSTANTS: [Body; 13] = [
        |_, _| constant(0),
        |_, _| constant(1),
        |_, _| constant(2),
        |_, _| constant(3),
        |_, _| constant(4),
        |_, _| constant(5),
        |_, _| constant(6),
        |_, _| constant(7),
        |_, _| constant(8),
        |_, _| constant(9),
        |_, _| constant(10),
        |_, _| constant(11),
        |_, _| constant(12),
    ];
    for (format, body) in FORMATS.iter().zip(CONSTANTS) {
        let name = format!("format.{}", format.name);
        functions.add_named(&name, &name, "() kubernetes.NamedFormat", body);
    }
}

fn constant<'a>(index: usize) -> Eval<Value<'a>> {
    FORMATS
        .get(index)
        .map(|format| Value::Opaque(Opaque::Format(format)))
        .ok_or_else(EvalError::no_such_overload)
}

fn validate<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Eval<Value<'a>> {
    let Some(Value::Opaque(Opaque::Format(format))) = args.first() else {
        return Err(EvalError::no_such_overload());
    };
    let faults = faults(context, format.name, text(args, 1)?);
    Ok(Value::optional(if faults.is_empty() { None } else { Some(Value::strings(faults)) }))
}

fn faults(context: &Context<'_>, format: &str, text: &str) -> Vec<String> {
    let unless = |valid: bool, fault: &str| if valid { Vec::new() } else { vec![fault.to_owned()] };
    match format {
        "uri" => Url::check_request_uri(text).err().into_iter().collect(),
        "uuid" => unless(is_uuid(text), "does not match the UUID format"),
        "byte" => unless(is_base64(text), "invalid base64"),
        "date" => unless(Time::parse_date(text).is_some(), "invalid date"),
        "datetime" => unless(is_date_time(text), "invalid datetime"),
        _ => context.host.check_name(format, text),
    }
}

/// 32 hexadecimal digits in groups of 8, 4, 4, 4 and 12; a dash may stand between two groups.
fn is_uuid(text: &str) -> bool {
    let mut rest = text;
    for (index, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if index > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        let Some((group, after)) = rest.as_bytes().split_at_checked(length) else { return false };
        if !group.iter().all(u8::is_ascii_hexdigit) {
            return false;
        }
        rest = std::str::from_utf8(after).unwrap_or("?");
    }
    rest.is_empty()
}

fn is_base64(text: &str) -> bool {
    let digits = text.trim_end_matches('=');
    let padding = text.len() - digits.len();
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && padding <= 2
        && digits.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'))
}

/// A date, `t`, a time of day and an offset, in either case.
fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    if text.len() < 4 || Time::parse_date(date).is_none() {
        return false;
    }
    let Some((clock, rest)) = time.as_bytes().split_at_checked(8) else { return false };
    let [h1, h2, b':', m1, m2, b':', s1, s2] = clock else { return false };
    let digits = [h1, h2, m1, m2, s1, s2].iter().all(|byte| byte.is_ascii_digit());
    if !digits || (h1, h2) > (&b'2', &b'3') || *m1 > b'5' || *s1 > b'5' {
        return false;
    }
    let is_zone = |zone: &[u8]| match zone {
        [b'z'] => true,
        [b'+' | b'-', zone @ ..] => {
            zone.len() == 5
                && zone[2] == b':'
                && [0, 1, 3, 4].iter().all(|index| zone[*index].is_ascii_digit())
        }
        _ => false,
    };
    if is_zone(rest) {
        return true;
    }
    // The pattern takes any character for the point before the fraction of a second.
    let tail = std::str::from_utf8(rest).unwrap_or("");
    let mut characters = tail.chars();
    if characters.next().is_none_or(|point| point == '\n') {
        return false;
    }
    let after = characters.as_str().as_bytes();
    let digits = after.iter().take_while(|byte| byte.is_ascii_digit()).count();
    digits > 0 && is_zone(&after[digits..])
}
