//! Cells of tables: values at a path, and ages as people read them.

use serde_json::Value;

use crate::{gotext, jsonpath::JsonPath, schema};

/// How long ago an RFC 3339 time was, for people; `now` in seconds since 1970.
pub fn age_of(time: &str, now: i64) -> String {
    match time.parse::<jiff::Timestamp>() {
        Ok(time) => human_duration(now - time.as_second()),
        Err(_) => "<unknown>".to_owned(),
    }
}

/// A duration to two or three significant digits, as upstream shortens it.
pub fn human_duration(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    let two = |big: i64, big_name: &str, small: i64, small_name: &str| match small {
        0 => format!("{big}{big_name}"),
        small => format!("{big}{big_name}{small}{small_name}"),
    };
    match seconds {
        i64::MIN..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        s if s < 2 * MINUTE => format!("{s}s"),
        s if s < 10 * MINUTE => two(s / MINUTE, "m", s % MINUTE, "s"),
        s if s < 3 * HOUR => format!("{}m", s / MINUTE),
        s if s < 8 * HOUR => two(s / HOUR, "h", s % HOUR / MINUTE, "m"),
        s if s < 2 * DAY => format!("{}h", s / HOUR),
        s if s < 8 * DAY => two(s / DAY, "d", s % DAY / HOUR, "h"),
        s if s < 2 * YEAR => format!("{}d", s / DAY),
        s if s < 8 * YEAR => two(s / YEAR, "y", s % YEAR / DAY, "d"),
        s => format!("{}y", s / YEAR),
    }
}

/// The value at a column's path (`.status.phase`, `.spec.ports[0].port`); null if there is none.
pub fn find(object: &Value, path: &str) -> Value {
    if path.contains(['[', '\\', '*']) {
        let path = JsonPath::parse(path).ok();
        return path.and_then(|path| path.first(object).cloned()).unwrap_or_default();
    }
    let keys = path.split('.').filter(|key| !key.is_empty());
    keys.into_iter().try_fold(object, |value, key| value.get(key)).cloned().unwrap_or_default()
}

/// The cell of a column that a custom resource definition declares, with the type it declares.
pub fn custom_cell(path: &JsonPath, kind: &str, object: &Value, now: i64) -> Value {
    let Some(value) = path.first(object) else { return Value::Null };
    match (kind, value) {
        ("string", Value::Null) => "null".into(),
        ("string", Value::Array(_) | Value::Object(_)) => gotext::json(value).into(),
        ("string", value) => gotext::plain(value).into(),
        ("integer", Value::Number(number)) => match number.as_i64() {
            Some(whole) => whole.into(),
            None => (number.as_f64().unwrap_or_default() as i64).into(),
        },
        ("number", Value::Number(number)) => number.clone().into(),
        ("boolean", Value::Bool(value)) => (*value).into(),
        ("date", Value::String(text)) => custom_date(text, now).into(),
        _ => Value::Null,
    }
}

fn custom_date(text: &str, now: i64) -> String {
    match schema::parse_time(text) {
        _ if text.is_empty() || text == "null" => "<unknown>".to_owned(),
        Ok((seconds, _)) => human_duration(now.saturating_sub(seconds)),
        Err(_) => "<invalid>".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let rows = [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (11_100, "3h5m"),
            (28_800, "8h"),
            (172_800, "2d"),
            (176_400, "2d1h"),
            (691_200, "8d"),
            (63_072_000, "2y"),
            (63_158_400, "2y1d"),
            (400_000_000, "12y"),
        ];
        for (seconds, text) in rows {
            assert_eq!(human_duration(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn paths_with_brackets_are_followed_too() {
        let object = serde_json::json!({"spec": {"ports": [{"port": 80}]}, "status": {"phase": "Up"}});
        assert_eq!(find(&object, ".status.phase"), "Up");
        assert_eq!(find(&object, ".spec.ports[0].port"), 80);
        assert_eq!(find(&object, ".spec.ports[3].port"), Value::Null);
    }

    #[test]
    fn custom_cells_have_their_declared_type() {
        let object = serde_json::json!({"n": 3, "f": 1.5, "s": "x", "b": true, "t": "1970-01-01T00:00:00Z", "m": {"a": 1}, "z": null});
        for (path, kind, cell) in [
            (".n", "integer", serde_json::json!(3)),
            (".f", "integer", serde_json::json!(1)),
            (".n", "number", serde_json::json!(3)),
            (".n", "string", serde_json::json!("3")),
            (".m", "string", serde_json::json!("{\"a\":1}")),
            (".b", "boolean", serde_json::json!(true)),
            (".s", "boolean", Value::Null),
            (".t", "date", serde_json::json!("2m")),
            (".s", "date", serde_json::json!("<invalid>")),
            (".absent", "string", Value::Null),
        ] {
            let path = JsonPath::parse(path).unwrap();
            assert_eq!(custom_cell(&path, kind, &object, 120), cell, "{path:?} {kind}");
        }
    }
}
