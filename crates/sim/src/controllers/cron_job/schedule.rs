//! When a CronJob starts Jobs: five fields, or a word for common ones, in a time zone.

use jiff::{
    SignedDuration, Timestamp,
    civil::Date,
    tz::{TimeZone, TimeZoneDatabase},
};

/// A schedule that finds no time in so many years has none.
const YEARS: i64 = 5;
const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const WORDS: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

#[derive(Clone, Debug)]
pub enum Schedule {
    Fields(Box<Fields>),
    /// From one start to the next.
    Every(SignedDuration),
}

#[derive(Clone, Debug)]
pub struct Fields {
    minutes: Set,
    hours: Set,
    days: Set,
    months: Set,
    weekdays: Set,
    zone: TimeZone,
}

/// Numbers as bits, and whether they are all there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Set {
    bits: u64,
    all: bool,
}

impl Set {
    fn has(self, number: i8) -> bool {
        u32::try_from(number).is_ok_and(|number| self.bits.checked_shr(number).unwrap_or(0) & 1 == 1)
    }
}

/// Of a name, as the API server has checked it; nothing is UTC.
pub fn zone(name: &str) -> Option<TimeZone> {
    match name {
        "" | "UTC" | "Local" => Some(TimeZone::UTC),
        name => TimeZoneDatabase::bundled().get(name).ok(),
    }
}

impl Schedule {
    /// `None` if it cannot be read, which the API server does not let pass. A zone in the text wins.
    pub fn parse(text: &str, default_zone: TimeZone) -> Option<Schedule> {
        let named = text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ="));
        let (zone, text) = match named {
            Some(named) => {
                let (name, rest) = named.split_once(' ')?;
                (zone(name)?, rest.trim())
            }
            None => (default_zone, text),
        };
        if let Some(duration) = text.strip_prefix("@every ") {
            let nanos = machinery::schema::parse_duration(duration).ok()?;
            // A second is the shortest, and whole seconds are all there are.
            let seconds = (nanos / 1_000_000_000).max(1);
            return Some(Schedule::Every(SignedDuration::from_secs(seconds)));
        }
        let text = WORDS.iter().find(|(word, _)| *word == text).map_or(text, |(_, fields)| fields);
        let parts: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = parts.as_slice() else { return None };
        Some(Schedule::Fields(Box::new(Fields {
            minutes: set(minutes, 0, 59, &[])?,
            hours: set(hours, 0, 23, &[])?,
            days: set(days, 1, 31, &[])?,
            months: set(months, 1, 12, &MONTHS)?,
            weekdays: set(weekdays, 0, 6, &DAYS)?,
            zone,
        })))
    }

    /// The first time after this one.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match self {
            Schedule::Every(duration) => {
                Timestamp::from_second(after.as_second()).ok()?.checked_add(*duration).ok()
            }
            Schedule::Fields(fields) => fields.next(after),
        }
    }
}

impl Fields {
    /// From one minute to the next, in steps as large as can be. A time that a change of clocks leaves out is left out;
    /// one that it repeats comes twice.
    fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let minute = after.as_second().div_euclid(60).checked_add(1)?;
        let mut time = Timestamp::from_second(minute.checked_mul(60)?).ok()?;
        let end = after.checked_add(SignedDuration::from_hours(YEARS * 366 * 24)).ok()?;
        while time <= end {
            let local = self.zone.to_datetime(time);
            let date = local.date();
            if !self.months.has(date.month()) {
                time = self.start_of(date.last_of_month().tomorrow().ok()?)?;
            } else if !self.has_day(date) {
                time = self.start_of(date.tomorrow().ok()?)?;
            } else if !self.hours.has(local.hour()) {
                time = time.checked_add(SignedDuration::from_mins(60 - i64::from(local.minute()))).ok()?;
            } else if !self.minutes.has(local.minute()) {
                time = time.checked_add(SignedDuration::from_mins(1)).ok()?;
            } else {
                return Some(time);
            }
        }
        None
    }

    fn start_of(&self, date: Date) -> Option<Timestamp> {
        Some(date.to_zoned(self.zone.clone()).ok()?.timestamp())
    }

    /// If both the day of the month and that of the week are limited, either will do.
    fn has_day(&self, date: Date) -> bool {
        let by_month = self.days.has(date.day());
        let by_week = self.weekdays.has(date.weekday().to_sunday_zero_offset());
        if self.days.all || self.weekdays.all { by_month && by_week } else { by_month || by_week }
    }
}

fn set(text: &str, min: u32, max: u32, names: &[&str]) -> Option<Set> {
    let mut set = Set { bits: 0, all: false };
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(step.parse::<u32>().ok().filter(|step| *step > 0)?)),
            None => (part, None),
        };
        let number = |text: &str| match names.iter().position(|name| name.eq_ignore_ascii_case(text)) {
            Some(at) => u32::try_from(at).ok().map(|at| at + min),
            None => text.parse::<u32>().ok(),
        };
        let (first, last) = match range.split_once('-') {
            _ if range == "*" || range == "?" => {
                set.all |= step.is_none_or(|step| step == 1);
                (min, max)
            }
            Some((first, last)) => (number(first)?, number(last)?),
            None => {
                let first = number(range)?;
                (first, if step.is_some() { max } else { first })
            }
        };
        if first < min || last > max || first > last {
            return None;
        }
        let step = usize::try_from(step.unwrap_or(1)).ok()?;
        (first..=last).step_by(step).for_each(|number| set.bits |= 1 << number);
    }
    Some(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(text: &str, zone_name: &str, after: &str, count: usize) -> Vec<String> {
        let zone = zone(zone_name).expect("a zone");
        let schedule = Schedule::parse(text, zone).expect("a schedule");
        let mut time: Timestamp = after.parse().expect("a time");
        let mut times = Vec::new();
        for _ in 0..count {
            let Some(next) = schedule.next(time) else { break };
            times.push(next.to_string());
            time = next;
        }
        times
    }

    #[test]
    fn fields_say_when() {
        let start = "2026-01-01T00:00:00Z";
        let table: [(&str, &[&str]); 12] = [
            ("* * * * *", &["2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"]),
            ("*/15 * * * *", &["2026-01-01T00:15:00Z", "2026-01-01T00:30:00Z"]),
            (
                "5/20 3 * * *",
                &[
                    "2026-01-01T03:05:00Z",
                    "2026-01-01T03:25:00Z",
                    "2026-01-01T03:45:00Z",
                    "2026-01-02T03:05:00Z",
                ],
            ),
            (
                "0 8-10/2 * * mon-fri",
                &[
                    "2026-01-01T08:00:00Z",
                    "2026-01-01T10:00:00Z",
                    "2026-01-02T08:00:00Z",
                    "2026-01-02T10:00:00Z",
                    "2026-01-05T08:00:00Z",
                ],
            ),
            ("30 4 29 feb *", &["2028-02-29T04:30:00Z"]),
            ("0 0 31 * *", &["2026-01-31T00:00:00Z", "2026-03-31T00:00:00Z"]),
            // Either the 13th or a Friday.
            ("0 0 13 * 5", &["2026-01-02T00:00:00Z", "2026-01-09T00:00:00Z", "2026-01-13T00:00:00Z"]),
            ("0 0 */10 * 5", &["2026-01-02T00:00:00Z", "2026-01-09T00:00:00Z", "2026-01-11T00:00:00Z"]),
            ("@yearly", &["2027-01-01T00:00:00Z"]),
            ("@weekly", &["2026-01-04T00:00:00Z"]),
            ("@every 90s", &["2026-01-01T00:01:30Z", "2026-01-01T00:03:00Z"]),
            ("0 0 30 feb *", &[]),
        ];
        for (text, expected) in table {
            assert_eq!(times(text, "", start, expected.len().max(1)), expected, "{text}");
        }
    }

    #[test]
    fn zones_shift_and_change_their_clocks() {
        assert_eq!(
            times("0 9 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", 2),
            ["2026-03-28T08:00:00Z", "2026-03-29T07:00:00Z"]
        );
        // 02:30 does not exist on the 29th.
        assert_eq!(
            times("30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", 2),
            ["2026-03-28T01:30:00Z", "2026-03-30T00:30:00Z"]
        );
        assert_eq!(times("TZ=Asia/Tokyo 0 9 * * *", "", "2026-01-01T00:00:00Z", 1), ["2026-01-02T00:00:00Z"]);
    }

    #[test]
    fn what_is_no_schedule_is_refused() {
        for text in [
            "",
            "* * * *",
            "61 * * * *",
            "* * * * mon-",
            "*/0 * * * *",
            "9-5 * * * *",
            "@often",
            "@every soon",
        ] {
            assert!(Schedule::parse(text, TimeZone::UTC).is_none(), "{text}");
        }
    }
}
