//! Cells of tables: values at a path, and ages as people read them.

use serde_json::Value;

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

/// The value at a column's path (`.status.phase`); null if there is none.
pub fn find(object: &Value, path: &str) -> Value {
    let keys = path.split('.').filter(|key| !key.is_empty());
    keys.into_iter().try_fold(object, |value, key| value.get(key)).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let rows = [
            (-5, "<invalid>"), (-1, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (125, "2m5s"), (600, "10m"),
            (10_799, "179m"), (10_800, "3h"), (11_100, "3h5m"), (28_800, "8h"), (172_800, "2d"), (176_400, "2d1h"),
            (691_200, "8d"), (63_072_000, "2y"), (63_158_400, "2y1d"), (400_000_000, "12y"),
        ];
        for (seconds, text) in rows {
            assert_eq!(human_duration(seconds), text, "{seconds}");
        }
    }
}
