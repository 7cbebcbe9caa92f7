//! Parts of instants and of lengths of time.

use crate::{
    error::{Eval, EvalError},
    functions::{Functions, Row},
    number::quote,
    time::{Civil, Time},
    value::Value,
};

macro_rules! part {
    ($name:literal, $id:literal, $with_zone:literal, $part:expr) => {
        [
            ($name, $id, "timestamp.() int", |_, args| timestamp_part(args, $part)),
            ($name, $with_zone, "timestamp.(string) int", |_, args| timestamp_part(args, $part)),
        ] as [Row; 2]
    };
}

pub fn add(functions: &mut Functions) {
    const HOUR: i64 = 3_600_000_000_000;
    let parts: [[Row; 2]; 10] = [
        part!("getFullYear", "timestamp_to_year", "timestamp_to_year_with_tz", |_, civil| civil.year),
        part!("getMonth", "timestamp_to_month", "timestamp_to_month_with_tz", |_, civil| civil.month - 1),
        part!(
            "getDayOfYear",
            "timestamp_to_day_of_year",
            "timestamp_to_day_of_year_with_tz",
            |_, civil| civil.day_of_year - 1
        ),
        part!(
            "getDayOfMonth",
            "timestamp_to_day_of_month",
            "timestamp_to_day_of_month_with_tz",
            |_, civil| civil.day - 1
        ),
        part!(
            "getDate",
            "timestamp_to_day_of_month_1_based",
            "timestamp_to_day_of_month_1_based_with_tz",
            |_, civil| civil.day
        ),
        part!("getDayOfWeek", "timestamp_to_day_of_week", "timestamp_to_day_of_week_with_tz", |_, civil| {
            civil.day_of_week
        }),
        part!("getHours", "timestamp_to_hours", "timestamp_to_hours_with_tz", |_, civil| civil.hour),
        part!("getMinutes", "timestamp_to_minutes", "timestamp_to_minutes_with_tz", |_, civil| civil.minute),
        part!("getSeconds", "timestamp_to_seconds", "timestamp_to_seconds_tz", |_, civil| civil.second),
        part!(
            "getMilliseconds",
            "timestamp_to_milliseconds",
            "timestamp_to_milliseconds_with_tz",
            |time, _| { i64::from(time.nanos() / 1_000_000) }
        ),
    ];
    for rows in parts {
        functions.add(&rows);
    }
    functions.add(&[
        ("getHours", "duration_to_hours", "duration.() int", |_, args| whole(args, HOUR)),
        ("getMinutes", "duration_to_minutes", "duration.() int", |_, args| whole(args, HOUR / 60)),
        ("getSeconds", "duration_to_seconds", "duration.() int", |_, args| whole(args, HOUR / 3600)),
        ("getMilliseconds", "duration_to_milliseconds", "duration.() int", |_, args| whole(args, 1_000_000)),
    ]);
}

fn whole<'a>(args: &[Value<'a>], unit: i64) -> Eval<Value<'a>> {
    match args {
        [Value::Duration(nanos)] => Ok(Value::Int(nanos / unit)),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn timestamp_part<'a>(args: &[Value<'a>], part: fn(&Time, Civil) -> i64) -> Eval<Value<'a>> {
    match args {
        [Value::Timestamp(time)] => Ok(Value::Int(part(time, time.civil(0)))),
        [Value::Timestamp(time), Value::String(zone)] => {
            let offset = offset(time, zone).map_err(EvalError::invalid)?;
            Ok(Value::Int(part(time, time.civil(offset))))
        }
        _ => Err(EvalError::no_such_overload()),
    }
}

/// Seconds east of UTC in a zone: a name of the time zone database or `+hh:mm`.
fn offset(time: &Time, zone: &str) -> Result<i64, String> {
    let Some((hours, minutes)) = zone.split_once(':') else {
        return named_offset(time, zone);
    };
    let hours = atoi(hours)?;
    let minutes = atoi(minutes)?;
    let minutes = if zone.starts_with('-') { -minutes } else { minutes };
    let total = hours.checked_mul(60).and_then(|total| total.checked_add(minutes));
    total
        .filter(|minutes| minutes.abs() <= 100 * 24 * 60)
        .map(|minutes| minutes * 60)
        .ok_or_else(|| format!("time zone offset {zone} out of range"))
}

fn named_offset(time: &Time, zone: &str) -> Result<i64, String> {
    if matches!(zone, "" | "UTC") {
        return Ok(0);
    }
    let unknown = || format!("unknown time zone {zone}");
    let zone = jiff::tz::TimeZone::get(zone).map_err(|_| unknown())?;
    let instant = jiff::Timestamp::from_second(time.seconds()).map_err(|_| unknown())?;
    Ok(i64::from(zone.to_offset(instant).seconds()))
}

fn atoi(text: &str) -> Result<i64, String> {
    let reason = if text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
        "value out of range"
    } else {
        "invalid syntax"
    };
    text.parse().map_err(|_| format!("strconv.Atoi: parsing {}: {reason}", quote(text)))
}
