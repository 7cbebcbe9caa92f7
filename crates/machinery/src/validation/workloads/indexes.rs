//! Sets of indexes as text: `1,3-5,7`.

use crate::gotext::quote;

/// How many indexes there are, all below `completions` and in ascending order.
pub fn total(text: &str, completions: i64) -> Result<i64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    let mut last: Option<i64> = None;
    let mut total = 0;
    for part in text.split(',') {
        let (first, end) = interval(part, completions)?;
        if let Some(last) = last.filter(|last| *last >= first) {
            return Err(format!("non-increasing order, previous: {last}, current: {first}"));
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

/// The first index that is in both, if they are in order.
pub fn overlap(completed: &str, failed: &str, completions: i64) -> Option<i64> {
    if completed.is_empty() || failed.is_empty() {
        return None;
    }
    // What cannot be read is passed over; others complain of it.
    let read = |text: &str| -> Vec<(i64, i64)> {
        text.split(',').filter_map(|part| interval(part, completions).ok()).collect()
    };
    let (completed, failed) = (read(completed), read(failed));
    let (mut c, mut f) = (0, 0);
    while let (Some((c_first, c_end)), Some((f_first, f_end))) = (completed.get(c), failed.get(f)) {
        if c_first <= f_end && f_first <= c_end {
            return Some(*c_first.max(f_first));
        }
        if c_first <= f_first { c += 1 } else { f += 1 }
    }
    None
}

fn interval(text: &str, completions: i64) -> Result<(i64, i64), String> {
    let parts: Vec<&str> = text.split('-').collect();
    let (first, end) = match parts.as_slice() {
        [first] => (*first, None),
        [first, end] => (*first, Some(*end)),
        _ => {
            return Err(format!(
                "the fragment {} violates the requirement that an index interval can have at most two parts separated by '-'",
                quote(text)
            ));
        }
    };
    let first = index(first, completions)?;
    let Some(end) = end else { return Ok((first, first)) };
    let end = index(end, completions)?;
    if first >= end {
        return Err(format!("non-increasing order, previous: {first}, current: {end}"));
    }
    Ok((first, end))
}

fn index(text: &str, completions: i64) -> Result<i64, String> {
    let number: i64 =
        text.parse().map_err(|_| format!("cannot convert string to integer for index: {}", quote(text)))?;
    if number >= completions { Err(format!("too large index: {}", quote(text))) } else { Ok(number) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_counted_in_order() {
        for (text, result) in [
            ("", Ok(0)),
            ("1,3-5,7", Ok(5)),
            ("3,1", Err("non-increasing order, previous: 3, current: 1")),
            ("5-3", Err("non-increasing order, previous: 5, current: 3")),
            (
                "1-2-3",
                Err(
                    "the fragment \"1-2-3\" violates the requirement that an index interval can have at most two parts separated by '-'",
                ),
            ),
            ("x", Err("cannot convert string to integer for index: \"x\"")),
            ("10", Err("too large index: \"10\"")),
            ("1-10", Err("too large index: \"10\"")),
        ] {
            assert_eq!(total(text, 10), result.map_err(str::to_owned), "{text}");
        }
    }

    #[test]
    fn sets_overlap_where_they_share_an_index() {
        for (completed, failed, shared) in [
            ("", "1", None),
            ("1-3", "2", Some(2)),
            ("1,5", "2-4", None),
            ("x,4", "1,4", Some(4)),
            ("0-9", "3-4", Some(3)),
        ] {
            assert_eq!(overlap(completed, failed, 10), shared, "{completed} {failed}");
        }
    }
}
