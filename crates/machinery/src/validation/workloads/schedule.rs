//! When jobs of a cron job start: `*/5 8-18 * * mon-fri`, `@daily`, `@every 1h30m`.

/// What a field of a schedule may hold.
struct Bounds {
    min: u64,
    max: u64,
    /// Words that stand for numbers, from `min` on.
    names: &'static [&'static str],
}

const FIELDS: [Bounds; 5] = [
    Bounds { min: 0, max: 59, names: &[] },
    Bounds { min: 0, max: 23, names: &[] },
    Bounds { min: 1, max: 31, names: &[] },
    Bounds {
        min: 1,
        max: 12,
        names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    },
    Bounds { min: 0, max: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] },
];

const DESCRIPTORS: [&str; 7] =
    ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];

/// Says what is wrong with a schedule.
pub fn check(schedule: &str) -> Result<(), String> {
    let rest = without_zone(schedule)?;
    if rest.starts_with('@') {
        return descriptor(rest);
    }
    let fields: Vec<&str> = rest.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        let found = fields.len();
        return Err(format!("expected exactly 5 fields, found {found}: [{}]", fields.join(" ")));
    }
    fields.iter().zip(&FIELDS).try_for_each(|(field, bounds)| {
        field.split(',').filter(|range| !range.is_empty()).try_for_each(|text| range(text, bounds))
    })
}

/// A schedule may begin with a time zone; that it may not be so here is said elsewhere.
fn without_zone(schedule: &str) -> Result<&str, String> {
    let zone = schedule.strip_prefix("TZ=").or_else(|| schedule.strip_prefix("CRON_TZ="));
    let Some(zone) = zone else { return Ok(schedule) };
    let Some((zone, rest)) = zone.split_once(' ') else {
        // Upstream's parser fails on the missing space.
        let start = schedule.len() - zone.len();
        return Err(format!(
            "invalid schedule format: runtime error: slice bounds out of range [{start}:-1]"
        ));
    };
    match is_zone(zone) {
        true => Ok(rest.trim()),
        false => Err(format!("provided bad location {zone}: unknown time zone {zone}")),
    }
}

/// Whether there is a time zone of that name, in that spelling.
pub fn is_zone(name: &str) -> bool {
    let known = jiff::tz::TimeZoneDatabase::bundled();
    matches!(name, "" | "UTC" | "Local") || known.available().any(|zone| zone.as_str() == name)
}

fn descriptor(text: &str) -> Result<(), String> {
    if DESCRIPTORS.contains(&text) {
        return Ok(());
    }
    match text.strip_prefix("@every ") {
        Some(duration) => crate::schema::parse_duration(duration)
            .map(drop)
            .map_err(|error| format!("failed to parse duration {text}: {error}")),
        None => Err(format!("unrecognized descriptor: {text}")),
    }
}

fn range(text: &str, bounds: &Bounds) -> Result<(), String> {
    let mut parts = text.split('/');
    let limits: Vec<&str> = parts.next().unwrap_or_default().split('-').collect();
    let (start, mut end) = match limits.as_slice() {
        ["*" | "?", ..] => (bounds.min, bounds.max),
        [one] => {
            let one = number_or_name(one, bounds)?;
            (one, one)
        }
        [start, end] => (number_or_name(start, bounds)?, number_or_name(end, bounds)?),
        [start, ..] => {
            number_or_name(start, bounds)?;
            return Err(format!("too many hyphens: {text}"));
        }
        [] => return Ok(()),
    };
    let step = match (parts.next(), parts.next()) {
        (None, _) => 1,
        (Some(step), None) => number(step)?,
        (Some(_), Some(_)) => return Err(format!("too many slashes: {text}")),
    };
    if limits.len() == 1 && text.contains('/') {
        end = bounds.max;
    }
    let Bounds { min, max, .. } = bounds;
    match () {
        _ if start < *min => Err(format!("beginning of range ({start}) below minimum ({min}): {text}")),
        _ if end > *max => Err(format!("end of range ({end}) above maximum ({max}): {text}")),
        _ if start > end => Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}")),
        _ if step == 0 => Err(format!("step of range should be a positive number: {text}")),
        _ => Ok(()),
    }
}

fn number_or_name(text: &str, bounds: &Bounds) -> Result<u64, String> {
    let named = bounds.names.iter().position(|name| name.eq_ignore_ascii_case(text));
    match named {
        Some(at) => Ok(bounds.min + at as u64),
        None => number(text),
    }
}

/// A whole number as Go reads it, with a sign perhaps.
fn number(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let quoted = crate::gotext::quote(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!(
            "failed to parse int from {text}: strconv.Atoi: parsing {quoted}: invalid syntax"
        ));
    }
    let Ok(number) = text.parse::<i64>() else {
        return Err(format!(
            "failed to parse int from {text}: strconv.Atoi: parsing {quoted}: value out of range"
        ));
    };
    u64::try_from(number).map_err(|_| format!("negative number ({number}) not allowed: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules() {
        for text in [
            "* * * * *",
            "*/5 8-18 1,15 jan-Jun MON",
            "0 0 ? * 1/2",
            "@daily",
            "@every 1h30m",
            "5/15 * * * *",
            ", * * * *",
            "TZ=Europe/Berlin 0 0 * * *",
        ] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
        for (text, error) in [
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("*/1/2 * * * *", "too many slashes: */1/2"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
            ("@often", "unrecognized descriptor: @often"),
            ("TZ=Nowhere 0 0 * * *", "provided bad location Nowhere: unknown time zone Nowhere"),
        ] {
            assert_eq!(check(text), Err(error.to_owned()), "{text}");
        }
    }

    #[test]
    fn zones_are_known_by_their_exact_names() {
        assert_eq!(
            ["Europe/Berlin", "UTC", "Etc/UTC", "europe/berlin", "Mars/Olympus"].map(is_zone),
            [true, true, true, false, false]
        );
    }
}
